from __future__ import annotations

from pathlib import Path
from time import process_time

import numpy as np
import pytest

from simnmt.network.series import TraceError
from simnmt.network.traces import read_trace
from simnmt.network.traces.trace import ReadOptions, Trace

LINUX = """\
PING goal.example (192.0.2.9) 56(84) bytes of data.
64 bytes from goal.example (192.0.2.9): icmp_seq=1 ttl=57 time=12.5 ms
64 bytes from goal.example (192.0.2.9): icmp_seq=2 ttl=57 time=11.0 ms
64 bytes from goal.example (192.0.2.9): icmp_seq=2 ttl=57 time=15.0 ms (DUP!)
no answer yet for icmp_seq=3
From 10.0.0.1 icmp_seq=4 Destination Host Unreachable
64 bytes from goal.example (192.0.2.9): icmp_seq=5 ttl=57 time=13 ms

--- goal.example ping statistics ---
5 packets transmitted, 3 received, +1 duplicates, 40% packet loss, time 4005ms
rtt min/avg/max/mdev = 11.000/12.166/13.000/0.849 ms
"""
STAMPED = """\
PING 192.0.2.9 (192.0.2.9) 56(84) bytes of data.
[1700000000.250000] 64 bytes from 192.0.2.9: icmp_seq=1 ttl=57 time=12.5 ms
[1700000000.750000] 64 bytes from 192.0.2.9: icmp_seq=2 ttl=57 time=11.0 ms
[1700000002.250000] 64 bytes from 192.0.2.9: icmp_seq=5 ttl=57 time=13.0 ms
[1700000003.100000] no answer yet for icmp_seq=6
"""
MACOS = """\
PING goal.example (192.0.2.9): 56 data bytes
64 bytes from 192.0.2.9: icmp_seq=0 ttl=57 time=12.500 ms
64 bytes from 192.0.2.9: icmp_seq=1 ttl=57 time=11.000 ms
Request timeout for icmp_seq 2
Request timeout for icmp_seq 3
64 bytes from 192.0.2.9: icmp_seq=4 ttl=57 time=13.000 ms
"""
WINDOWS = """\

Pinging goal.example [192.0.2.9] with 32 bytes of data:
Reply from 192.0.2.9: bytes=32 time=12ms TTL=57
Reply from 192.0.2.9: bytes=32 time<1ms TTL=57
Request timed out.
Reply from 192.0.2.1: Destination host unreachable.
Reply from 192.0.2.9: bytes=32 time=13ms TTL=57

Ping statistics for 192.0.2.9:
    Packets: Sent = 5, Received = 4, Lost = 1 (20% loss),
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ping.txt"


def read(file: Path, text: str, **options: float) -> Trace:
    file.write_text(text, encoding="utf-8")
    (trace,) = read_trace(file, ReadOptions(**options))  # type: ignore[arg-type]
    return trace


def counts(trace: Trace) -> list[int]:
    """Replies, requests without one and duplicates, as the header of an imported series states them."""
    (remark,) = [remark for remark in trace.remarks if remark.startswith("replies read")]
    return [int(part.rpartition(" ")[2]) for part in remark.split(", ")]


@pytest.mark.parametrize(
    ("text", "rtts_ms", "duplicates"),
    [(LINUX, [12.5, 11, 11, 11, 13], 1), (MACOS, [12.5, 11, 11, 11, 13], 0), (WINDOWS, [12, 1, 1, 1, 13], 0)],
    ids=["linux", "macos", "windows"],
)
def test_requests_without_a_reply_are_lost_on_every_system(
    file: Path, text: str, rtts_ms: list[float], duplicates: int
) -> None:
    trace = read(file, text)
    assert (trace.value * 1e3).tolist() == pytest.approx(rtts_ms)
    assert trace.lost.tolist() == [False, False, True, True, False]
    every_s, origin = (1.00125, "by the summary") if text is LINUX else (1, "taken for granted")
    assert trace.time_s == pytest.approx(np.arange(5) * every_s, abs=1e-6)
    assert (trace.kind, trace.source, counts(trace)) == ("measured", "ping to goal.example", [3, 2, duplicates])
    assert f"a request each {every_s:.4g} s {origin}" in "; ".join(trace.remarks)
    assert ("replies in less than 1 ms, taken for 1 ms: 1" in trace.remarks) is (text is WINDOWS)
    assert read(file, text, interval_s=0.2).time_s == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])


def test_a_request_has_the_time_at_which_it_was_sent(file: Path) -> None:
    trace = read(file, STAMPED)
    assert trace.time_s == pytest.approx([0, 0.5015, 1.000833, 1.500167, 1.9995, 2.499917], abs=1e-5)
    assert trace.lost.tolist() == [False, False, True, True, False, True]
    assert trace.began_s == pytest.approx(1_700_000_000.2375)
    assert len(trace.remarks) == 1


def test_replies_that_were_held_up_together_were_sent_one_after_the_other(file: Path) -> None:
    rtts_ms = [20, 20, 5100, 4100, 3100, 2100, 1100, 20]
    lines = [
        f"[{1_700_000_000 + number + rtt_ms / 1e3:.6f}] 64 bytes from 192.0.2.9: icmp_seq={number} ttl=57 time={rtt_ms} ms"
        for number, rtt_ms in enumerate(rtts_ms, 1)
    ]
    trace = read(file, "\n".join(lines) + "\n")
    assert trace.time_s == pytest.approx(range(8), abs=1e-5)
    assert (trace.value * 1e3).tolist() == pytest.approx(rtts_ms)


def test_requests_of_a_stamped_run_that_was_not_answered_lie_between_the_runs(file: Path) -> None:
    run = (
        "PING 192.0.2.9 (192.0.2.9) 56(84) bytes of data.\n{}--- statistics ---\n1 packets transmitted, {} received, {}% loss\n"
    )
    reply = "[{}.010] 64 bytes from 192.0.2.9: icmp_seq=1 ttl=57 time=10 ms\n"
    lost = run.format("", 0, 100)
    trace = read(file, run.format(reply.format(100), 1, 0) + lost + lost + run.format(reply.format(130), 1, 0) + lost)
    assert trace.lost.tolist() == [False, True, True, False, True]
    assert trace.time_s == pytest.approx([0, 10, 20, 30, 40])


def test_numbers_that_begin_anew_go_on(file: Path) -> None:
    head = "PING 192.0.2.9 (192.0.2.9) 56(84) bytes of data.\n"

    def replies(*numbers: int) -> str:
        return "".join(f"64 bytes from 192.0.2.9: icmp_seq={number} ttl=57 time={1 + number % 7} ms\n" for number in numbers)

    wrapped = read(file, head + replies(65_534, 65_535, 0, 2))
    assert wrapped.lost.tolist() == [False, False, False, True, False]
    overtaken = read(file, head + replies(65_534, 0, 65_535, 1))
    assert overtaken.lost.tolist() == [False] * 4
    assert (overtaken.value * 1e3).tolist() == pytest.approx([1, 2, 1, 2])
    again = read(file, head + replies(1, 2, 3) + "\n" + head + replies(1, 2))
    assert not again.lost.any()
    assert (again.value * 1e3).tolist() == pytest.approx([2, 3, 4, 2, 3])


PING6 = """\
PING6(56=40+8+8 bytes) 2001:db8::2 --> 2001:db8::1
16 bytes from 2001:db8::1, icmp_seq=0 hlim=57 time={0}.000 ms
16 bytes from 2001:db8::1, icmp_seq=1 hlim=57 time={1}.000 ms

--- host.example ping6 statistics ---
2 packets transmitted, 2 packets received, 0.0% packet loss
"""
BUSYBOX = """\
PING goal.example (192.0.2.9): 56 data bytes
64 bytes from 192.0.2.9: seq=1 ttl=57 time={0}.500 ms
64 bytes from 192.0.2.9: seq=2 ttl=57 time={1}.500 ms

--- goal.example ping statistics ---
4 packets transmitted, 2 packets received, 50% packet loss
"""


def test_every_run_of_a_file_is_kept(file: Path) -> None:
    trace = read(file, PING6.format(10, 11) + PING6.format(50, 51))
    assert (trace.value * 1e3).tolist() == pytest.approx([10, 11, 50, 51])
    assert trace.source == "ping to 2001:db8::1"
    single = "64 bytes from 192.0.2.9: icmp_seq=1 ttl=57 time={} ms\n"
    assert (read(file, "".join(map(single.format, (3, 4, 5)))).value * 1e3).tolist() == pytest.approx([3, 4, 5])


def test_the_summary_counts_losses_after_the_last_reply(file: Path) -> None:
    twice = read(file, BUSYBOX.format(1, 2) * 2)
    assert counts(twice) == [4, 4, 0]
    assert twice.lost.tolist() == [False, False, True, True] * 2
    loop = (
        "PING 192.0.2.7 (192.0.2.7) 56(84) bytes of data.\n{}\n1 packets transmitted, {} received, {}% packet loss, time 0ms\n"
    )
    reply = "64 bytes from 192.0.2.7: icmp_seq=1 ttl=57 time=10 ms"
    trace = read(file, loop.format(reply, 1, 0) + loop.format("", 0, 100) * 2 + loop.format(reply, 1, 0))
    assert trace.lost.tolist() == [False, True, True, False]


def test_a_summary_that_the_lines_contradict_is_remarked(file: Path) -> None:
    assert not any("summary of ping" in remark for remark in read(file, LINUX).remarks)
    few = read(file, LINUX.replace("5 packets transmitted, 3 received", "3 packets transmitted, 4 received"))
    assert sum("summary of ping" in remark for remark in few.remarks) == 2


HEAD = "PING 192.0.2.9 (192.0.2.9) 56(84) bytes of data.\n"


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "no answer yet for icmp_seq=1\n",
        HEAD,
        HEAD + "5 packets transmitted, 0 received, 100% packet loss\n",
        HEAD + "\n--- 192.0.2.9 ping statistics ---\n5 packets transmitted, 5 received, 0% packet loss, time 4005ms\n",
        LINUX + STAMPED,
        LINUX.replace("icmp_seq=1 ", "icmp_seq=999999999 "),
        "PING www.example:80 (/):\nconnected to 192.0.2.80:80 (300 bytes), seq=0 time= 21.30 ms \n",
    ],
)
def test_a_log_that_shows_no_round_trips_to_one_host_is_refused(file: Path, text: str) -> None:
    with pytest.raises(TraceError) as caught:
        read(file, text)
    assert caught.value.path == str(file) and caught.value.remedy and "\n" not in str(caught.value)


ROUTER = """\
76 bytes from 198.51.100.33: Communication prohibited by filter
Vr HL TOS  Len   ID Flg  off TTL Pro  cks      Src      Dst
 4  5  00 5400 0001   0 0000  3a  01 0000 198.51.100.5  192.0.2.22

"""
COLONS = WINDOWS.replace("Request timed out.", ":a" * 100_000)
REDIRECT = "92 bytes from 198.51.100.1: Redirect Host(New addr: 198.51.100.254)\n"
FOREIGN = f"24 bytes from 198.51.100.1: icmp_seq=0 ttl=54 time=-{'1234567890' * 500},000 ms (DUP!)\n"
FAILED = "Reply from 10.0.0.1: TTL expired in transit.\nGeneral failure.\nPING: transmit failed. General failure.\n"
WINDOWS_IPV6 = """
Pinging goal.example [2001:db8::9] with 32 bytes of data:
Reply from 2001:db8::9: time=12ms
Request timed out.
Reply from 2001:db8::9: time<1ms

Ping statistics for 2001:db8::9:
    Packets: Sent = 4, Received = 2, Lost = 2 (50% loss),
Approximate round trip times in milli-seconds:
    Minimum = 0ms, Maximum = 12ms, Average = 6ms
"""
VARIANTS = {
    "answers of routers": (
        MACOS.replace("Request timeout for icmp_seq 3\n", ROUTER).replace("64 bytes", REDIRECT + "64 bytes", 1),
        "..xx.",
        "lines skipped, the first of them line 2: 4",
    ),
    "a duplicate from elsewhere with a negative time": (
        MACOS.replace("time=12.500", "time=12,500") + FOREIGN,
        "..xx.",
        "replies read: 3, requests without a reply: 2, duplicates left out: 1",
    ),
    "replies without a time": (
        LINUX.replace(" time=11.0 ms", "", 1),
        ".xxx.",
        "replies without a time in ms, so lost: 1",
    ),
    "failed requests on Windows": (
        WINDOWS.replace("Request timed out.\n", FAILED),
        "..xxxx.",
        "replies read: 3, requests without a reply: 4, duplicates left out: 0",
    ),
    "Windows over IPv6, which prints no TTL": (WINDOWS_IPV6, ".x.x", "replies in less than 1 ms, taken for 1 ms: 1"),
    "Windows without the first line": (
        WINDOWS[WINDOWS.index("Reply") :],
        "...xx",
        "lines skipped, the first of them line 3: 2",
    ),
    "a CSV log before it": (
        "time_s,rtt_ms\n0,50\n1,50\n" + MACOS,
        "..xx.",
        "lines skipped, the first of them line 1: 3",
    ),
    "a summary of other RTTs": (
        BUSYBOX.format(12, 16) + "round-trip min/avg/max = 12.5/999.0/16.5 ms\n",
        "..xx",
        "min/avg/max by the summary of ping: 12.5/999/16.5 ms, in the file: 12.5/14.5/16.5 ms",
    ),
    "a Windows summary of other RTTs": (
        WINDOWS_IPV6.replace("Average = 6", "Average = 60"),
        ".x.x",
        "min/avg/max by the summary of ping: 0/60/12 ms, in the file: 1/6.5/12 ms",
    ),
    "fewer replies by the summary of Windows": (
        WINDOWS.replace("Received = 4", "Received = 2"),
        "..xx.",
        "replies by the summary of ping, of which 3 are in the file: 2",
    ),
    "more replies by the summary of Windows": (
        WINDOWS.replace("Received = 4", "Received = 5"),
        "..xx.",
        "replies by the summary of ping, of which 3 are in the file: 4",
    ),
    "losses before the first reply": (
        LINUX.replace("icmp_seq=1", "icmp_seq=3").replace("icmp_seq=2", "icmp_seq=4"),
        "...",
        "replies read: 3, requests without a reply: 2, duplicates left out: 1",
    ),
}


def test_a_line_of_many_colons_is_read_in_linear_time(file: Path) -> None:
    begin_s = process_time()
    assert read(file, COLONS).lost.tolist() == [False, False, True, True, False]
    assert process_time() - begin_s < 5.0, "the square of it takes minutes"


@pytest.mark.parametrize(("text", "lost", "remark"), VARIANTS.values(), ids=VARIANTS)
def test_what_is_no_reply_is_lost_or_skipped_and_counted(file: Path, text: str, lost: str, remark: str) -> None:
    trace = read(file, text)
    assert "".join("x" if is_lost else "." for is_lost in trace.lost) == lost
    assert remark in trace.remarks
    assert trace.value[0] in (0.012, 0.0125)


LANGUAGES = {
    "German": (
        "cp850",
        "Ping wird ausgeführt für goal.example [192.0.2.9] mit 32 Bytes Daten:",
        "Antwort von 192.0.2.9: Bytes=32 Zeit{}ms TTL=57",
        "Zeitüberschreitung der Anforderung.\nAntwort von 192.0.2.1: Zielhost nicht erreichbar.\nPING: Allgemeiner Fehler.",
        "Ping-Statistik für 192.0.2.9:\n    Pakete: Gesendet = 6, Empfangen = 4, Verloren = 2\n    (33% Verlust),",
    ),
    "French": (
        "cp850",
        "Envoi d'une requête 'Ping'  goal.example [192.0.2.9] avec 32 octets de données :",
        "Réponse de 192.0.2.9 : octets=32 temps{} ms TTL=57",
        "Délai d'attente dépassé.\nRéponse de 192.0.2.1 : Impossible de joindre l'hôte.\nPING : échec de la transmission.",
        "Statistiques Ping pour 192.0.2.9:\n    Paquets : envoyés = 6, reçus = 4, perdus = 2 (perte 33%),",
    ),
    "Spanish": (
        "cp850",
        "Haciendo ping a goal.example [192.0.2.9] con 32 bytes de datos:",
        "Respuesta desde 192.0.2.9: bytes=32 tiempo{}m TTL=57",
        "Tiempo de espera agotado.\nRespuesta desde 192.0.2.1: Host de destino inaccesible.\nPING: error en la transmisión.",
        "Estadísticas de ping para 192.0.2.9:\n    Paquetes: enviados = 6, recibidos = 4, perdidos = 2\n    (33% perdidos),",
    ),
    "Chinese": (
        "cp936",
        "正在 Ping goal.example [192.0.2.9] 具有 32 字节的数据:",
        "来自 192.0.2.9 的回复: 字节=32 时间{}ms TTL=57",
        "请求超时。\n来自 192.0.2.1 的回复: 无法访问目标主机。\nPING: 传输失败。一般故障。",
        "192.0.2.9 的 Ping 统计信息:\n    数据包: 已发送 = 6，已接收 = 4，丢失 = 2 (33% 丢失)，\n"
        "往返行程的估计时间(以毫秒为单位):\n    最短 = 0ms，最长 = 13ms，平均 = 8ms",
    ),
    "Russian": (
        "cp866",
        "Обмен пакетами с goal.example [192.0.2.9] с 32 байтами данных:\n",
        "Ответ от 192.0.2.9: число байт=32 время{}мс TTL=57",
        "Превышен интервал ожидания для запроса.\nОтвет от 192.0.2.1: Заданный узел недоступен.\nОбщий сбой.",
        "Статистика Ping для 192.0.2.9:\n    Пакетов: отправлено = 6, получено = 4, потеряно = 2\n    (33% потерь)\n"
        "Приблизительное время приема-передачи в мс:\n    Минимальное = 0мсек, Максимальное = 13 мсек\nControl-C",
    ),
}
"""Code page, first line, reply, three lines that are none, and the lines at the end."""


def of_windows(language: str) -> str:
    _, head, reply, losses, end = LANGUAGES[language]
    return "\n".join(["", head, reply.format("=12"), reply.format("<1"), losses, reply.format("=13"), "", end, ""])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "code page"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_windows_is_read_in_every_language_and_code_page(file: Path, language: str, encoding: str) -> None:
    code_page = LANGUAGES[language][0] if encoding == "code page" else encoding
    file.write_bytes(of_windows(language).replace("\n", "\r\n").encode(code_page))
    (trace,) = read_trace(file)
    assert (trace.value * 1e3).tolist() == pytest.approx([12, 1, 1, 1, 1, 13])
    assert trace.lost.tolist() == [False, False, True, True, True, False]
    assert trace.source == "ping to goal.example"
    assert "replies in less than 1 ms, taken for 1 ms: 1" in trace.remarks


def test_a_column_of_a_log_of_ping_is_refused(file: Path) -> None:
    with pytest.raises(TraceError, match="--column is for CSV logs, and this is output of ping") as caught:
        read(file, LINUX, columns={"rtt": ("a", None)})  # type: ignore[arg-type]
    assert (caught.value.path, caught.value.remedy) == (str(file), "leave it out")


@pytest.mark.parametrize(
    "line",
    [
        "64 Bytes von 192.0.2.9: icmp_seq=1 ttl=57 Zeit=12,5 ms",
        "64 octets de 192.0.2.9 : icmp_seq=1 ttl=57 temps=12.5 ms",
        "64 字节，来自 192.0.2.9: icmp_seq=1 ttl=57 时间=12.5 毫秒",
        "64 bytes from 192.0.2.9: icmp_seq=1 ident=7 ttl=57 time=12.5 ms",
    ],
)
def test_unix_is_read_in_other_languages_too(file: Path, line: str) -> None:
    assert (read(file, f"{line}\n").value * 1e3).tolist() == pytest.approx([12.5])


@pytest.mark.parametrize(
    "text", [LINUX[: LINUX.index("13 ms") - 5], of_windows("German").partition("=13ms")[0]], ids=["Linux", "Windows"]
)
def test_a_reply_within_which_the_file_ends_is_skipped_and_counted_and_a_whole_one_is_not(file: Path, text: str) -> None:
    assert counts(read(file, MACOS.removesuffix("\n"))) == [3, 2, 0]
    trace = read(file, text)
    assert "entries skipped, since the file ends within them: 1" in trace.remarks
    assert trace.value[0] in (0.012, 0.0125)
