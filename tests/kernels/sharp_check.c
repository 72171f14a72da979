/* The sharp decoder's source side and search over awkward sizes and every way to write it, in memory exactly as large as it asks for: for the sanitizers to watch
   (SHARP-01), and, linked with --wrap=malloc and its kin, to count what it allocates. Techniques that are identities must give the same words. */
#include "vectors.h"

#include "sharp.h"

#include <stdio.h>
#include <stdlib.h>

static uint32_t drawn_last = 1;
static volatile int64_t watching, allocations; /* volatile: the compiler takes malloc for a function that reads neither */

#if defined(COUNT_ALLOCATIONS)
void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
void *__wrap_malloc(size_t size) { return allocations += watching, __real_malloc(size); }
void *__wrap_calloc(size_t count, size_t size) { return allocations += watching, __real_calloc(count, size); }
void *__wrap_realloc(void *old, size_t size) { return allocations += watching, __real_realloc(old, size); }
#endif

static float drawn(float reach) {
    drawn_last = drawn_last * 1664525u + 1013904223u;
    return reach * ((float)(drawn_last >> 8) / 8388608.0f - 1);
}

static void *held[4096];
static int64_t holds;
static void *hold(int64_t bytes) { return held[holds++] = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64); }

static float *floats(int64_t count, float reach) {
    float *x = held[holds++] = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++) x[i] = drawn(reach);
    return x;
}

/* Weights of float32 that 8 bits hold, so that int16 products are exact and find the same words. */
static sharp_matrix matrix(int64_t int16, int64_t outputs, int64_t inner, float limit, const void **rows) {
    int64_t padded = inner + (int16 && inner % 2), elements = packed_size(outputs, inner);
    float *weights = floats(outputs * padded, 1);
    int16_t *integers = hold(outputs * padded * 2), *unpadded = hold(outputs * inner * 2);
    for (int64_t i = 0; i < outputs * padded; i++) {
        integers[i] = i % padded < inner ? (int16_t)lrintf(weights[i] * 64) : 0;
        weights[i] = (float)integers[i] / 64;
        if (i % padded < inner) unpadded[i / padded * inner + i % padded] = integers[i];
    }
    void *packed = hold(elements * (int16 ? 2 : 4));
    if (int16)
        pack_int16(unpadded, outputs, inner, packed);
    else
        pack_float32(weights, outputs, inner, packed);
    *rows = int16 ? (const void *)integers : (const void *)weights;
    return (sharp_matrix){packed, outputs, inner, limit, 2048, 1.0f / 64 / 2048};
}

static sharp_model drawn_model(int64_t size, int64_t gates, int64_t additive, int64_t int16, int64_t layers) {
    const void *unused;
    sharp_model model = {.vocab = 4 + 9 * size, .e = 1 + size, .r = 2 + 3 * size, .s = 3 + size, .a = 1 + 2 * size, .gates = gates, .layers = layers};
    model.additive = additive, model.int16 = int16, model.activation = ACTIVATION_POLYNOMIAL;
    model.state = matrix(int16, gates * model.r + model.a, model.r, 1, &unused);
    model.word = matrix(int16, gates * model.r + model.a, model.e, 1, &unused);
    model.context = matrix(int16, gates * model.r, model.s, 1, &unused);
    model.key = matrix(int16, model.a, model.s, 1, &unused);
    model.embedding = floats(model.vocab * model.e, 1), model.bias = floats(gates * model.r, 1), model.score = floats(model.a, 1);
    sharp_layer *stack = hold((layers + 1) * (int64_t)sizeof *stack);
    int64_t below = model.r;
    for (int64_t i = 0; i < layers; i++) {
        int64_t kind = i == layers - 1 ? i % 4 : SHARP_FC_RELU, width = kind == SHARP_FC_RELU ? 5 + size : 4 + 2 * size;
        stack[i] = (sharp_layer){.kind = kind, .width = width, .skip = kind == SHARP_FC_RELU && i >= 2 && i % 2 == 0 ? i - 2 : -1};
        int64_t outputs = sharp_gates(stack + i) * width;
        stack[i].input = matrix(int16, outputs, below, i ? SHARP_RELU_LIMIT : 1, &unused);
        stack[i].state = matrix(int16, outputs, width, 1, &unused);
        stack[i].bias = floats(outputs, 1);
        below = width;
    }
    model.stack = stack, model.top = below;
    model.output = matrix(int16, model.vocab, below, layers ? SHARP_RELU_LIMIT : 1, &model.output_rows);
    model.output_bias = floats(model.vocab, 2);
    return model;
}

static int decode(const sharp_model *models, sharp_request request, int64_t *tokens, sharp_result *result) {
    const sharp_model *pointers[2] = {models, models + 1};
    const float *sources[2];
    void *memory[2];
    int64_t columns = request.ids ? request.columns : 0, *attended = hold(request.max_len * 8);
    for (int64_t i = 0; i < request.members; i++) {
        sources[i] = floats(request.src_len * models[i].s, 1);
        memory[i] = hold(simnmt_sharp_member_bytes(models + i, request.beam, request.src_len, columns));
    }
    void *beam = hold(simnmt_sharp_beam_bytes(request.beam, request.max_len, request.members > 1 ? request.beam * request.columns : 0));
    watching = 1;
    int64_t found = simnmt_sharp_decode(pointers, memory, beam, sources, &request, result, tokens, attended);
    watching = 0;
    return (int)found;
}

static int64_t check(int64_t size, int64_t gates, int64_t additive, int64_t int16, int64_t layers, int64_t members) {
    enum { MAX_LEN = 7 };
    int64_t wrong = 0, ids[9], vocab = 4 + 9 * size, first[MAX_LEN] = {0};
    sharp_result reference = {0};
    for (int64_t i = 0; i < 9; i++) ids[i] = (i * 5 + 3) % vocab;
    for (int64_t way = 0; way < 16; way++) {
        int kept = way & 1, merge = way >> 1 & 1, fused = way >> 2 & 1, listed = way >> 3;
        drawn_last = (uint32_t)(size * 64 + gates * 8 + layers);
        sharp_model models[2] = {drawn_model(size, gates, additive, int16, layers), drawn_model(size, gates, additive, int16, layers)};
        for (int64_t i = 0; i < members; i++) {
            models[i].attention_kept = kept, models[i].merge = merge;
            if (merge) {
                int64_t width = gates * models[i].r + models[i].a;
                float *table = floats(vocab / 2 * width, 1), *rows = floats(ROW_BLOCK * (models[i].e + 1), 1);
                simnmt_sharp_fill_table(int16, &models[i].word, models[i].embedding, vocab / 2, rows, table);
                models[i].table = table, models[i].table_words = vocab / 2;
            }
        }
        drawn_last = 7;
        sharp_request request = {.members = members, .src_len = 1 + 2 * size, .beam = 1 + 2 * size, .max_len = MAX_LEN};
        request.columns = listed && vocab > 9 ? 9 : vocab;
        request.ids = request.columns < vocab ? ids : NULL;
        request.start = 2, request.eos = 3, request.forced = size & 1, request.fused = fused, request.clock = fused, request.margin = 3;
        int64_t *tokens = hold(MAX_LEN * 8);
        sharp_result result;
        wrong += !decode(models, request, tokens, &result);
        if (way % 8 == 0) { /* the plain way to write it, of all words and of a list */
            reference = result;
            memcpy(first, tokens, (size_t)result.length * sizeof *tokens);
        }
        /* Rounding alone may differ; where an input of int16 lies between two integers it is a step. */
        wrong += !(fabs(result.log_prob - reference.log_prob) <= (int16 ? 0.1 : 1e-3));
        wrong += !int16 && (result.length != reference.length || memcmp(first, tokens, (size_t)result.length * sizeof *tokens));
        if (request.ids) {
            int64_t words[2] = {ids[1], ids[2]}, places[2] = {1, 2}, best[2];
            float log_probs[2];
            request.beam = 1;
            void *memory = hold(simnmt_sharp_member_bytes(models, 1, request.src_len, request.columns));
            const float *source = floats(request.src_len * models->s, 1);
            watching = 1;
            simnmt_sharp_forced(models, memory, source, &request, words, places, 2, best, log_probs);
            watching = 0;
            wrong += !(log_probs[0] <= 0 && log_probs[1] <= 0);
        }
        for (; holds > 0; holds--) free(held[holds - 1]);
    }
    return wrong;
}

static sharp_source drawn_source(int64_t size, int64_t kind, int64_t int16, int64_t layers) {
    const void *unused;
    sharp_source source = {.vocab = 4 + 9 * size, .e = 1 + size, .layers = layers, .int16 = int16, .activation = ACTIVATION_POLYNOMIAL};
    sharp_source_layer *stack = hold(layers * (int64_t)sizeof *stack);
    int64_t below = source.e;
    for (int64_t i = 0; i < layers; i++) {
        int64_t width = 2 + 3 * size + i;
        stack[i] = (sharp_source_layer){.kind = kind, .width = width};
        int64_t gates = sharp_source_gates(stack + i);
        stack[i].input = matrix(int16, 2 * gates, below, 1, &unused);
        for (int direction = 0; direction < 2; direction++) stack[i].state[direction] = matrix(int16, gates, width, 1, &unused);
        stack[i].bias = floats(2 * gates, 1), stack[i].reset_bias = kind == SHARP_GRU ? floats(2 * width, 1) : NULL;
        below = 2 * width;
    }
    source.embedding = floats(source.vocab * source.e, 1), source.stack = stack;
    return source;
}

/* The source side: kept products of embeddings change no bit, and states stay within [-1, 1]. */
static int64_t check_source(int64_t size, int64_t kind, int64_t int16, int64_t layers) {
    int64_t wrong = 0, src_len = 1 + 2 * size, vocab = 4 + 9 * size, most = src_len + size % 2;
    float *first = NULL;
    for (int64_t kept = 0; kept < 3; kept++) {
        drawn_last = (uint32_t)(size * 64 + kind * 8 + layers);
        sharp_source source = drawn_source(size, kind, int16, layers);
        const sharp_matrix *input = &source.stack->input;
        source.table_words = kept * vocab / 2;
        float *table = floats(source.table_words * input->outputs, 1), *rows = floats(ROW_BLOCK * (source.e + 1), 1);
        simnmt_sharp_fill_table(int16, input, source.embedding, source.table_words, rows, table);
        source.table = table;
        int64_t *words = hold(src_len * 8), width = 2 * source.stack[layers - 1].width;
        for (int64_t i = 0; i < src_len; i++) words[i] = (i * 5 + 3) % vocab;
        float *states = floats(src_len * width, 1);
        void *memory = hold(simnmt_sharp_source_bytes(&source, most));
        watching = 1;
        simnmt_sharp_encode(&source, memory, most, words, src_len, states);
        watching = 0;
        for (int64_t i = 0; i < src_len * width; i++) wrong += !(fabsf(states[i]) <= 1);
        if (kept)
            wrong += memcmp(first, states, (size_t)(src_len * width) * sizeof *states) != 0;
        else
            first = states;
    }
    for (; holds > 0; holds--) free(held[holds - 1]);
    return wrong;
}

/* One array spills into the next: the sanitizer must see it, though both lie in one block. */
static int spill(void) {
    sharp_arena arena = {hold(4096), 0};
    const volatile float *first = sharp_floats(&arena, 5), *second = sharp_floats(&arena, 5);
    return first[5] > second[0];
}

int main(int arguments, char **argument) {
    (void)argument;
    if (arguments > 1) return spill();
    int64_t wrong = 0;
    for (int64_t size = 0; size < 6; size += size ? 4 : 1)
        for (int64_t form = 0; form < 8; form++)
            for (int64_t layers = 0; layers < 5; layers++)
                if (check(size, 3 + (form & 1), form >> 1 & 1, form >> 2, layers, 1 + layers % 2)) {
                    printf("size %d form %d layers %d\n", (int)size, (int)form, (int)layers);
                    wrong++;
                }
    for (int64_t size = 0; size < 6; size += size ? 4 : 1)
        for (int64_t form = 0; form < 4; form++)
            for (int64_t layers = 1; layers < 4; layers++)
                if (check_source(size, form & 1 ? SHARP_LSTM : SHARP_GRU, form >> 1, layers)) {
                    printf("source size %d form %d layers %d\n", (int)size, (int)form, (int)layers);
                    wrong++;
                }
    printf("%d wrong, %d allocations\n", (int)wrong, (int)allocations);
    watching = 1;
    free(malloc(1));
    printf("%d when one is made\n", (int)allocations);
    return wrong > 0;
}
