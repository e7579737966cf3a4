"""`ralph serve` as a command: where it listens, what it prints, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import subprocess
import urllib.request
from pathlib import Path

import pytest

from ralphproof.web.access import ServerAddress
from tests.cli.missing_packages import without
from tests.ralph import Live, Ralph, until
from tests.web.served import Served, connections, serve, serve_impatiently

KEPT = "a-token-that-somebody-keeps"


def told_by(live: Live) -> str:
    """The line that it printed."""

    def line() -> str:
        return Path(live.out.name).read_text(encoding="utf-8")

    until(lambda: line().endswith("\n"), "it tells where it is")
    return line()


def test_it_prints_one_address_on_this_machine_alone(ralph: Ralph) -> None:
    """WB-07: by default nobody else on the network can reach it."""
    live = ralph.start("serve", "--port", "0")
    line = told_by(live)
    assert re.fullmatch(r"http://127\.0\.0\.1:[0-9]+/\?token=[A-Za-z0-9_-]{43}\n", line)
    port = int(line.split(":")[2].partition("/")[0])
    assert listens_on(live.process.pid) == {f"0100007F:{port:04X}"}
    live.process.send_signal(signal.SIGTERM)
    ended = live.end()
    assert (ended.code, ended.out, ended.err) == (0, line, "")


def listens_on(pid: int) -> set[str]:
    """The addresses, as the kernel writes them, on which a process accepts connections."""
    mine = {os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")}
    tables = [Path(f"/proc/{pid}/net/{name}").read_text() for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table.splitlines()]
    return {row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in mine}


def test_for_programs_it_prints_one_object(ralph: Ralph) -> None:
    served = serve(ralph, "--control")
    assert served.told == {
        "v": 1, "type": "serve", "address": f"{served.origin}/?token={served.token}", "port": served.port,
        "pid": served.live.process.pid, "control": True, "metrics": False,
    }  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_well_and_leaves_nothing(ralph: Ralph, number: int) -> None:
    """Even while somebody looks on."""
    served = serve(ralph)
    onlooker = served.look_on("/api/events")
    onlooker.until(lambda told: told.event == "runs")
    assert served.end(number) == 0
    assert list(onlooker) == []
    assert served.said() == ""
    until(lambda: not Path(f"/proc/{served.pid}").exists(), "the process is gone")
    onlooker.close()


def test_a_port_that_is_taken_is_said(ralph: Ralph) -> None:
    """WB-10: in one line; whoever named a port wants no other."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = ralph("serve", "--port", str(port))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == f"ralph: port {port} of 127.0.0.1 is taken; give another --port, or 0 for a free one\n"


def test_where_the_usual_port_is_taken_another_one_is_used(ralph: Ralph) -> None:
    """WB-10: and that is said."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind(("127.0.0.1", 7654))
            other.listen()
        except OSError:
            pass  # somebody has it already, which will do
        live = ralph.start("serve")
        line = told_by(live)
    assert ":7654/" not in line
    assert Path(live.err.name).read_text() == "ralph: port 7654 is in use; using another one\n"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.invalid"])
def test_another_host_needs_https_or_a_clear_word(ralph: Ralph, host: str) -> None:
    """WB-07: so that nobody opens it to the network without meaning to."""
    ended = ralph("serve", "--port", "0", "--host", host)
    assert (ended.code, ended.out, len(ended.err.splitlines())) == (2, "", 1)
    assert "--tls-cert" in ended.err
    assert "--insecure-http" in ended.err


def test_on_every_address_the_token_is_asked_for_as_anywhere(ralph: Ralph) -> None:
    """WB-07, WB-04: and by its addresses it is known, by no other name."""
    served = serve(ralph, "--host", "0.0.0.0", "--insecure-http", "--name", "dev.example", "--name", "box.example:9000")
    assert served.told["address"].startswith(f"http://dev.example:{served.port}/?token=")
    assert served.ask("/api/runs", known=False).status == 401
    assert served.ask("/api/runs").status == 200
    known = ("dev.example:{port}", "box.example:9000", "0.0.0.0:{port}")
    for host in known:
        assert served.ask("/api/runs", host=host.format(port=served.port)).status == 200
    for host in ("box.example:{port}", "dev.example", "evil.example:{port}", "192.0.2.1:{port}"):
        assert served.ask("/api/runs", host=host.format(port=served.port)).status == 403


@pytest.mark.parametrize(("flags", "why"), [
    (["--host", "no.such.host.invalid", "--insecure-http"], "there is no address no.such.host.invalid here"),
    (["--host", "192.0.2.1", "--insecure-http"], "cannot listen on port"),
    (["--name", "http://x y"], "is no server name; write host or host:port"), (["--name", ""], "is no server name"),
    (["--name", "http://dev.example"], "is no server name"), (["--name", "::1"], "is no server name"),
    (["--name", "x:0"], "is no server name"), (["--name", "x/"], "is no server name"),
    (["--name", "x:65536"], "is no server name"),
    (["--port", "65536"], "is no port"), (["--port", "-1"], "port"), (["--port", "x"], "is no port"),
    (["--max-clients", "0"], "above zero"), (["--tls-cert", "x"], "--tls-cert and --tls-key must be given together"),
    (["--tls-cert", "no", "--tls-key", "no"], "cannot be used for https"), (["--controll"], "did you mean --control?"),
])  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line(ralph: Ralph, flags: list[str], why: str) -> None:
    ended = ralph("serve", *(flags if "--port" in flags else ["--port", "0", *flags]))
    assert (ended.code, ended.out, len(ended.err.splitlines())) == (2, "", 1)
    assert why in ended.err


@pytest.mark.parametrize(
    "token", ["short", "x" * 23, "with a blank in it, and long enough", "ü" * 30, "x" * 600, "a;" * 20]
)
def test_a_token_that_could_be_guessed_or_does_not_fit_is_refused(ralph: Ralph, token: str) -> None:
    """WB-06."""
    ended = ralph("serve", "--port", "0", env={"RALPH_SERVE_TOKEN": token})
    assert (ended.code, ended.out, len(ended.err.splitlines())) == (2, "", 1)
    assert token not in ended.err


def test_each_start_has_a_token_of_its_own_but_where_one_is_kept(ralph: Ralph) -> None:
    assert serve(ralph).token != serve(ralph).token
    kept = serve(ralph, env={"RALPH_SERVE_TOKEN": KEPT})
    assert kept.token == KEPT
    assert kept.ask("/api/runs", headers={"Cookie": kept.cookie}, known=False).status == 200


@pytest.mark.parametrize("package", ["starlette", "uvicorn"])
def test_without_the_libraries_it_says_how_to_get_them(ralph: Ralph, package: str) -> None:
    ended = ralph("serve", "--port", "0", env=without(ralph, package))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith("install them: pip install 'ralphproof[web]'\n")
    assert len(ended.err.splitlines()) == 1


def test_a_project_without_runs_is_served_and_its_first_run_appears(ralph: Ralph) -> None:
    ralph.commit()
    served = serve(ralph)
    onlooker = served.look_on("/api/events")
    first = onlooker.until(lambda told: told.event == "runs")[-1]
    assert (first.data["runs"], first.data["total"]) == ([], 0)
    assert ralph("run", "-p", "x", "--agent", ralph.script([{"text": "<response>DONE</response>"}])).code == 0
    seen = onlooker.until(lambda told: told.event == "runs" and told.data["runs"][0]["state"] == "ended")[-1]
    assert seen.data["total"] == 1
    onlooker.close()


def test_over_https_the_cookie_is_for_https_alone(ralph: Ralph) -> None:
    cert, key = certificate(ralph.folder)
    served = serve(ralph, "--tls-cert", cert, "--tls-key", key)
    assert served.told["address"].startswith(f"https://127.0.0.1:{served.port}/?token=")
    context = ssl.create_default_context(cafile=cert)
    cookie = entered(served, context)
    assert cookie.endswith("; HttpOnly; SameSite=Strict; Secure")
    own = {"Cookie": served.cookie, "Origin": f"https://127.0.0.1:{served.port}"}
    asked = urllib.request.Request(f"https://127.0.0.1:{served.port}/api/runs", headers=own)
    with urllib.request.urlopen(asked, context=context, timeout=20) as answer:
        assert answer.status == 200
    assert served.end() == 0


def test_handshakes_that_never_end_hold_nobody_up(ralph: Ralph) -> None:
    """Twice as many as may be connected, and no more; each is let go in a moment."""
    cert, key = certificate(ralph.folder)
    flags = ("--tls-cert", cert, "--tls-key", key, "--max-clients", "3")
    served = serve_impatiently(ralph, *flags, env={"FAULTS": str(ralph.folder), "WAIT_S": "3"})
    silent = [socket.create_connection(("127.0.0.1", served.port), 20) for _ in range(6)]
    until(lambda: connections(served) == 6, "they are connected")
    assert gone(socket.create_connection(("127.0.0.1", served.port), 20))
    assert connections(served) <= 6
    assert all(map(gone, silent))
    assert "; HttpOnly; " in entered(served, ssl.create_default_context(cafile=cert))


def gone(sock: socket.socket) -> bool:
    """Wait until the other side has closed it, and close it."""
    with sock:
        try:
            return sock.recv(1) == b""
        except ConnectionError:
            return True


def entered(served: Served, context: ssl.SSLContext) -> str:
    """The cookie that the printed address is answered with."""
    asked = f"GET /?token={served.token} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nConnection: close\r\n\r\n"
    plain = socket.create_connection(("127.0.0.1", served.port), 20)
    with context.wrap_socket(plain, server_hostname="127.0.0.1") as sock:
        sock.sendall(asked.encode())
        told = b""
        while piece := sock.recv(65536):
            told += piece
    assert told.startswith(b"HTTP/1.1 303 ")
    return next(line for line in told.decode().splitlines() if line.lower().startswith("set-cookie: "))


def certificate(folder: Path) -> tuple[str, str]:
    """A certificate of this machine, signed by itself, and its key."""
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", key,
         "-out", cert], check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


def test_a_key_that_needs_a_password_is_refused_and_nobody_is_asked(ralph: Ralph) -> None:
    cert, key = certificate(ralph.folder)
    locked = str(ralph.folder / "locked.pem")
    lock = ["openssl", "ec", "-in", key, "-aes256", "-passout", "pass:word", "-out", locked]
    subprocess.run(lock, check=True, capture_output=True)
    ended = ralph("serve", "--port", "0", "--tls-cert", cert, "--tls-key", locked)
    assert (ended.code, len(ended.err.splitlines())) == (2, 1)
    assert "cannot be used for https" in ended.err


@pytest.mark.parametrize(("address", "origin", "ours"), [
    (ServerAddress("http", "127.0.0.1", 7654), "http://127.0.0.1:7654", "localhost:7654"),
    (ServerAddress("http", "::1", 7654), "http://[::1]:7654", "[::1]:7654"),
    (ServerAddress("https", "dev.example", 443), "https://dev.example", "dev.example"),
    (ServerAddress("http", "dev.example", 80), "http://dev.example", "dev.example:80"),
    (ServerAddress("https", "::", 7654, ("[2001:db8::1]",)), "https://[2001:db8::1]:7654", "[2001:db8::1]:7654"),
    (ServerAddress("http", "0.0.0.0", 7654), "http://127.0.0.1:7654", "127.0.0.1:7654"),
])  # fmt: skip
def test_an_address_knows_its_names(address: ServerAddress, origin: str, ours: str) -> None:
    assert address.origin == origin
    assert ours in address.hosts()
    assert "evil.example:7654" not in address.hosts("192.0.2.7")


def test_of_a_server_on_every_address_the_one_that_was_reached_is_a_name() -> None:
    """WB-04: no page can make an address of this machine its own name."""
    assert "192.0.2.7:7654" in ServerAddress("http", "0.0.0.0", 7654).hosts("192.0.2.7")
    assert "192.0.2.7:7654" not in ServerAddress("http", "127.0.0.1", 7654).hosts("192.0.2.7")
    assert "[2001:db8::1]:7654" in ServerAddress("http", "::", 7654).hosts("2001:db8::1")


def test_who_comes_by_ipv4_to_a_socket_of_both_names_it_so() -> None:
    assert "192.0.2.7:7654" in ServerAddress("http", "::", 7654).hosts("::ffff:192.0.2.7")
