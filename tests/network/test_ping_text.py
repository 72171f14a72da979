from __future__ import annotations

from pathlib import Path

import pytest

from simnmt.network.errors import TraceError
from simnmt.network.trace_options import ReadOptions
from simnmt.network.traces.readings import Trace
from simnmt.network.traces.trace_file import read_trace

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


def read(file: Path, text: str, **how: float) -> Trace:
    file.write_text(text, encoding="utf-8")
    (trace,) = read_trace(file, ReadOptions(**how))  # type: ignore[arg-type]
    return trace


@pytest.mark.parametrize(
    ("text", "rtts_ms"),
    [(LINUX, [12.5, 11, 11, 11, 13]), (MACOS, [12.5, 11, 11, 11, 13]), (WINDOWS, [12, 1, 1, 1, 13])],
    ids=["linux", "macos", "windows"],
)
def test_requests_without_a_reply_are_lost_on_every_system(file: Path, text: str, rtts_ms: list[float]) -> None:
    trace = read(file, text)
    assert (trace.value * 1e3).tolist() == pytest.approx(rtts_ms)
    assert trace.lost.tolist() == [False, False, True, True, False]
    assert trace.time_s.tolist() == [0, 1, 2, 3, 4]
    assert (trace.kind, trace.source) == ("measured", "ping to goal.example")
    assert "a request each 1 s taken for granted" in "; ".join(trace.remarks)


def test_a_duplicate_is_left_out(file: Path) -> None:
    assert "duplicate replies left out: 1" in read(file, LINUX).remarks


def test_times_are_those_that_ping_printed(file: Path) -> None:
    trace = read(file, STAMPED)
    assert trace.time_s == pytest.approx([0, 0.5, 1.0, 1.5, 2.0, 2.5])
    assert trace.lost.tolist() == [False, False, True, True, False, True]
    assert trace.began_s == 1_700_000_000.25
    assert trace.remarks == ()


def test_the_interval_can_be_stated(file: Path) -> None:
    assert read(file, LINUX, interval_s=0.2).time_s == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])


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


def test_a_run_without_any_reply_is_refused(file: Path) -> None:
    with pytest.raises(TraceError, match=r"ping\.txt: ping had no reply"):
        read(file, "PING 192.0.2.9 (192.0.2.9) 56(84) bytes of data.\nno answer yet for icmp_seq=1\n")


def test_a_number_that_no_ping_prints_is_refused(file: Path) -> None:
    with pytest.raises(TraceError, match=r"ping\.txt:12: request 4000000000 follows request 5"):
        read(file, LINUX + "64 bytes from 192.0.2.9: icmp_seq=4000000000 ttl=57 time=1 ms\n")


REPLY = "64 bytes from 192.0.2.9: icmp_seq={} ttl=57 time=1 ms\n"


@pytest.mark.parametrize(
    "line",
    [REPLY.format("9" * 5000), f"[{'9' * 400}] {REPLY.format(6)}", f"Request timeout for icmp_seq {'9' * 5000}\n"],
    ids=["sequence", "stamp", "lost"],
)
def test_a_number_longer_than_any_is_one_short_line(file: Path, line: str) -> None:
    with pytest.raises(TraceError, match=r"ping\.txt:12: ") as caught:
        read(file, LINUX + line)
    assert len(caught.value.what) < 200


def test_a_failed_request_on_windows_is_a_loss(file: Path) -> None:
    failed = "Reply from 10.0.0.1: TTL expired in transit.\nGeneral failure.\nPING: transmit failed. General failure.\n"
    trace = read(file, WINDOWS.replace("Request timed out.\n", failed))
    assert trace.lost.tolist() == [False, False, True, True, True, True, False]


def test_a_reply_of_less_than_a_millisecond_counts_as_one_with_a_remark(file: Path) -> None:
    assert "replies in less than 1 ms, taken for 1 ms: 1" in read(file, WINDOWS).remarks
    assert not any("less than" in message for message in read(file, LINUX).remarks)


def test_a_destination_that_no_terminal_should_see_is_printable(file: Path) -> None:
    trace = read(file, LINUX.replace("PING goal.example", "PING \x1b[31m" + "x" * 5000))
    assert trace.source.isprintable() and len(trace.source) < 200


GERMAN = """
Ping wird ausgeführt für goal.example [192.0.2.9] mit 32 Bytes Daten:
Antwort von 192.0.2.9: Bytes=32 Zeit=12ms TTL=57
Antwort von 192.0.2.9: Bytes=32 Zeit<1ms TTL=57
Zeitüberschreitung der Anforderung.
Antwort von 192.0.2.1: Zielhost nicht erreichbar.
PING: Fehler bei der Übertragung. Allgemeiner Fehler.
Antwort von 192.0.2.9: Bytes=32 Zeit=13ms TTL=57

Ping-Statistik für 192.0.2.9:
    Pakete: Gesendet = 6, Empfangen = 4, Verloren = 2
    (33% Verlust),
Ca. Zeitangaben in Millisek.:
    Minimum = 0ms, Maximum = 13ms, Mittelwert = 8ms
"""
FRENCH = """
Envoi d’une requête 'Ping'  goal.example [192.0.2.9] avec 32 octets de données :
Réponse de 192.0.2.9 : octets=32 temps=12 ms TTL=57
Réponse de 192.0.2.9 : octets=32 temps<1ms TTL=57
Délai d’attente de la demande dépassé.
Réponse de 192.0.2.1 : Impossible de joindre l’hôte de destination.
PING : échec de la transmission. Défaillance générale.
Réponse de 192.0.2.9 : octets=32 temps=13 ms TTL=57

Statistiques Ping pour 192.0.2.9:
    Paquets : envoyés = 6, reçus = 4, perdus = 2 (perte 33%),
Durée approximative des boucles en millisecondes :
    Minimum = 0ms, Maximum = 13ms, Moyenne = 8ms
"""
SPANISH = """
Haciendo ping a goal.example [192.0.2.9] con 32 bytes de datos:
Respuesta desde 192.0.2.9: bytes=32 tiempo=12ms TTL=57
Respuesta desde 192.0.2.9: bytes=32 tiempo<1m TTL=57
Tiempo de espera agotado para esta solicitud.
Respuesta desde 192.0.2.1: Host de destino inaccesible.
PING: error en la transmisión. Error general.
Respuesta desde 192.0.2.9: bytes=32 tiempo=13ms TTL=57

Estadísticas de ping para 192.0.2.9:
    Paquetes: enviados = 6, recibidos = 4, perdidos = 2
    (33% perdidos),
Tiempos aproximados de ida y vuelta en milisegundos:
    Mínimo = 0ms, Máximo = 13ms, Media = 8ms
"""
CHINESE = """
正在 Ping goal.example [192.0.2.9] 具有 32 字节的数据:
来自 192.0.2.9 的回复: 字节=32 时间=12ms TTL=57
来自 192.0.2.9 的回复: 字节=32 时间<1ms TTL=57
请求超时。
来自 192.0.2.1 的回复: 无法访问目标主机。
PING: 传输失败。一般故障。
来自 192.0.2.9 的回复: 字节=32 时间=13ms TTL=57

192.0.2.9 的 Ping 统计信息:
    数据包: 已发送 = 6，已接收 = 4，丢失 = 2 (33% 丢失)，
往返行程的估计时间(以毫秒为单位):
    最短 = 0ms，最长 = 13ms，平均 = 8ms
"""
LANGUAGES = {"German": GERMAN, "French": FRENCH, "Spanish": SPANISH, "Chinese": CHINESE}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "code page", "other code page"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_windows_is_read_in_every_language_and_code_page(file: Path, language: str, encoding: str) -> None:
    pages = {"code page": "cp936", "other code page": "gb18030"} if language == "Chinese" else {}
    pages = pages or {"code page": "cp850", "other code page": "cp1252"}
    text = LANGUAGES[language].replace("’", "'") if "page" in encoding else LANGUAGES[language]
    file.write_bytes(text.replace("\n", "\r\n").encode(pages.get(encoding, encoding)))
    (trace,) = read_trace(file)
    assert (trace.value * 1e3).tolist() == pytest.approx([12, 1, 1, 1, 1, 13])
    assert trace.lost.tolist() == [False, False, True, True, True, False]
    assert trace.source == "ping to goal.example"
    assert "replies in less than 1 ms, taken for 1 ms: 1" in trace.remarks


@pytest.mark.parametrize("language", [language for language in LANGUAGES if language != "Chinese"])
def test_letters_that_a_log_has_lost_change_nothing(file: Path, language: str) -> None:
    lossy = "".join(letter if letter.isascii() else "?" for letter in LANGUAGES[language])
    assert read(file, lossy).lost.tolist() == [False, False, True, True, True, False]


@pytest.mark.parametrize(
    ("line", "rtt_ms"),
    [
        ("64 Bytes von 192.0.2.9: icmp_seq=1 ttl=57 Zeit=12,5 ms", 12.5),
        ("64 octets de 192.0.2.9 : icmp_seq=1 ttl=57 temps=12.5 ms", 12.5),
        ("64 bytes desde 192.0.2.9: icmp_seq=1 ttl=57 tiempo=12.5 ms", 12.5),
        ("64 字节，来自 192.0.2.9: icmp_seq=1 ttl=57 时间=12.5 毫秒", 12.5),
        ("Antwort von 2001:db8::9: Zeit=12ms", 12.0),
    ],
)
def test_other_systems_in_other_languages_are_read_too(file: Path, line: str, rtt_ms: float) -> None:
    assert (read(file, f"{line}\n").value * 1e3).tolist() == pytest.approx([rtt_ms])


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_reply_within_which_the_file_ends_is_skipped_and_counted(file: Path, language: str) -> None:
    text = LANGUAGES[language]
    cut = text[: text.index("13") - 1]
    trace = read(file, cut)
    assert (trace.value * 1e3).tolist() == pytest.approx([12, 1, 1, 1, 1])
    assert "entries skipped, since the file ends within them: 1" in trace.remarks
    with pytest.raises(TraceError, match=r"ping\.txt:8: a reply without a time \(complete the line or remove it\)"):
        read(file, cut + "\n")
