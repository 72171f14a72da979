/* Calls the functions of a library for a process on another processor, whose memory it reads and writes at the same addresses: see emulated_library.py.

   A page of the caller is fetched when a function first touches it, and sent back at the end of the call if it was changed. Messages go
   through standard input and output; both processors are little-endian. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, MOST_PAGES = 1 << 16 };
enum { CALL = 'c', TEXT = 's', PAGE_WANTED = 'p', PROBE = 't', DONE = 'd', FAULT = 'f' };

typedef struct {
    char name[64];
    int64_t numbers[16];
    double reals[8];
} Call;

/* Eight integers and eight floating-point numbers in registers, further integers on the stack: any function of these libraries. */
typedef int64_t (*Function)(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, double, double, double, double, double, double,
                            double, double, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t);

static struct {
    char *page;
    char *content; /* as fetched */
} mirrored[MOST_PAGES];
static int64_t mirrored_count;

static void put(const void *content, size_t size) {
    for (const char *at = content; size;) {
        ssize_t written = write(STDOUT_FILENO, at, size);
        if (written <= 0) _exit(1);
        at += written, size -= (size_t)written;
    }
}

static void get(void *content, size_t size) {
    for (char *at = content; size;) {
        ssize_t count = read(STDIN_FILENO, at, size);
        if (count <= 0) _exit(0);
        at += count, size -= (size_t)count;
    }
}

static void put_message(char kind, const void *content, size_t size) {
    put(&kind, 1);
    put(content, size);
}

static void fail(void *at) {
    int64_t address = (int64_t)at;
    put_message(FAULT, &address, sizeof address);
    _exit(1);
}

/* Fetch the page of a fault; a second fault on a page, or an address that the caller has not, is a failure of the function. */
static void fetch_page(int signal_number, siginfo_t *info, void *context) {
    (void)signal_number, (void)context;
    char *page = (char *)((uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1)), is_there;
    int64_t address = (int64_t)page;
    put_message(PAGE_WANTED, &address, sizeof address);
    get(&is_there, 1);
    if (!is_there || mirrored_count == MOST_PAGES) fail(info->si_addr);
    char *content = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (content == MAP_FAILED || mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != page) fail(info->si_addr);
    get(content, PAGE);
    memcpy(page, content, PAGE);
    mirrored[mirrored_count].page = page;
    mirrored[mirrored_count++].content = content;
}

/* Send the changed pages back, and forget all. */
static void end_call(int64_t result) {
    int64_t changed = 0;
    for (int64_t i = 0; i < mirrored_count; i++) changed += memcmp(mirrored[i].page, mirrored[i].content, PAGE) != 0;
    int64_t head[2] = {result, changed};
    put_message(DONE, head, sizeof head);
    for (int64_t i = 0; i < mirrored_count; i++) {
        if (memcmp(mirrored[i].page, mirrored[i].content, PAGE)) {
            int64_t address = (int64_t)mirrored[i].page;
            put(&address, sizeof address);
            put(mirrored[i].page, PAGE);
        }
        munmap(mirrored[i].page, PAGE);
        munmap(mirrored[i].content, PAGE);
    }
    mirrored_count = 0;
}

/* The time of a probe, which the caller knows. */
static double probe_time(int64_t decider, int64_t target, double at_s) {
    struct {
        int64_t decider, target;
        double at_s;
    } question = {decider, target, at_s};
    double answer_s;
    put_message(PROBE, &question, sizeof question);
    get(&answer_s, sizeof answer_s);
    return answer_s;
}

static void call(void *library) {
    Call call;
    get(&call, sizeof call);
    call.name[sizeof call.name - 1] = 0;
    Function function = (Function)dlsym(library, call.name);
    if (function == NULL) fail(NULL);
    const int64_t *n = call.numbers;
    const double *r = call.reals;
    end_call(function(n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], n[8], n[9], n[10], n[11], n[12],
                      n[13], n[14], n[15]));
}

/* Send a text, or the content of a block that a function allocated. */
static void send_content(int is_text) {
    char *content;
    get(&content, sizeof content);
    int64_t size = (int64_t)(is_text ? strlen(content) : malloc_usable_size(content));
    put(&size, sizeof size);
    put(content, (size_t)size);
}

int main(int count, char **arguments) {
    void *library = count == 2 ? dlopen(arguments[1], RTLD_NOW) : NULL;
    if (library == NULL) return fprintf(stderr, "%s\n", count == 2 ? dlerror() : "usage: call_server LIBRARY"), 2;
    struct sigaction action = {.sa_sigaction = fetch_page, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    int64_t address = (int64_t)probe_time;
    put(&address, sizeof address);
    for (char kind;;) {
        get(&kind, 1);
        if (kind == CALL)
            call(library);
        else
            send_content(kind == TEXT);
    }
}
