"""Where the daemon listens: TLS, a socket in the file system, and for which names."""

from __future__ import annotations

import socket
import ssl
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from clearway.client import Client
from clearway.config.configuration import load_config, parse_config
from clearway.model.errors import ConfigError
from clearway.model.requests import RequestKind
from clearway.service.listening import known_hosts, listen
from clearway.service.server import Service, background
from tests.integration.daemon import AUTHORIZED, PATIENT_S, TOKEN, Simulated, write_config


def certificate(folder: Path, name: str = "tls") -> tuple[Path, Path]:
    made, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    names = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    files = ["-days", "30", "-keyout", key, "-out", made]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)
    key.chmod(0o600)
    return made, key


@contextmanager
def serving(folder: Path, api: str) -> Iterator[Service]:
    """A daemon with these keys in its section [api]."""
    path = write_config(folder)
    path.write_text(path.read_text().replace("[api]\n", f"[api]\n{api}\n"))
    with background(Simulated(load_config(path), path).service()) as service:
        yield service


def subject(address: str) -> str:
    host, port = address.removeprefix("https://").split(":")
    pem = ssl.get_server_certificate((host, int(port)))
    command = ["openssl", "x509", "-noout", "-subject"]
    return subprocess.run(command, input=pem, capture_output=True, text=True, check=True).stdout


def test_tls_and_a_renewed_certificate(tmp_path: Path) -> None:
    made, key = certificate(tmp_path)
    with serving(tmp_path, f'certificate = "{made}"\ncertificate_key = "{key}"') as service:
        address = service.address
        assert address.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=str(made))
        with httpx.Client(verify=trusted, timeout=PATIENT_S) as client:
            assert client.get(f"{address}/health").status_code == 200
            assert client.post(f"{address}/api/v1/pause", headers=AUTHORIZED).status_code == 202
        with pytest.raises(httpx.TransportError):
            httpx.get(address.replace("https:", "http:") + "/health", timeout=PATIENT_S)
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.options |= ssl.OP_NO_TLSv1_2 | ssl.OP_NO_TLSv1_3
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{address}/health", verify=old, timeout=PATIENT_S)

        for source, target in zip(certificate(tmp_path, "renewed"), (made, key), strict=True):
            source.replace(target)
        service._listener.reload()
        assert "renewed" in subject(address)
        made.write_text("nonsense")
        with pytest.raises(ConfigError, match="cannot be used for TLS"):
            service._listener.reload()
        assert "renewed" in subject(address)


def test_a_socket_in_the_file_system(tmp_path: Path) -> None:
    path = tmp_path / "api"
    for _ in range(2):  # the second daemon finds what a killed one leaves behind
        with serving(tmp_path, f'socket = "{path}"') as service:
            assert service.address == f"unix:{path}"
            assert stat.S_IMODE(path.stat().st_mode) == 0o660
            with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=PATIENT_S) as client:
                assert client.get("http://localhost/health").status_code == 200
                asked = client.post("http://localhost/api/v1/pause", headers=AUTHORIZED)
                assert asked.status_code == 202
            with Client(service.address, TOKEN) as program:
                assert program.request(asked.json()["request_id"]).kind == RequestKind.PAUSE
            config = parse_config(f'[api]\nsocket = "{path}"\n', "here").api
            with pytest.raises(ConfigError, match="Address already in use"):
                listen(config)
        assert not path.exists()
        with socket.socket(socket.AF_UNIX) as abandoned:
            abandoned.bind(str(path))
    path.unlink()
    path.write_text("a file of somebody's")
    with pytest.raises(ConfigError, match="Address already in use"):
        listen(parse_config(f'[api]\nsocket = "{path}"\n', "here").api)
    assert path.read_text() == "a file of somebody's"


def test_files_that_cannot_be_used_for_tls(tmp_path: Path) -> None:
    made, key = certificate(tmp_path)
    other, _ = certificate(tmp_path, "other")

    def refused(certificate: Path, key: Path) -> str:
        text = f'[api]\nport = 0\ncertificate = "{certificate}"\ncertificate_key = "{key}"\n'
        with pytest.raises(ConfigError) as caught:
            listen(parse_config(text, "here").api)
        return str(caught.value)

    assert "cannot be used for TLS: KEY_VALUES_MISMATCH" in refused(other, key)
    assert "cannot be read" in refused(made, tmp_path / "absent")
    locked = tmp_path / "locked.key"
    command = ["openssl", "ec", "-aes128", "-passout", "pass:secret", "-in", key, "-out", locked]
    subprocess.run(command, check=True, capture_output=True)
    locked.chmod(0o600)
    assert "cannot be used for TLS" in refused(made, locked)
    key.chmod(0o644)
    assert "mode 0644 lets others read the key" in refused(made, key)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST.", 200),
        ("localhost:8642", 200),
        ("127.0.0.1:8642", 200),
        ("[::1]:8642", 200),
        ("192.0.2.7", 200),
        ("clearway.example.org", 200),
        ("clearway.example.org:443", 200),
        ("evil.example.org", 421),
        ("evil.example.org:8642", 421),
        ("localhost.evil.example.org", 421),
        ("127.0.0.1.evil.example.org", 421),
        ("evil.example.org@localhost", 421),
        ("", 421),
    ],
)
@pytest.mark.fault("A web page that points its own name to the daemon could read its answers.", found_by="attack")
def test_a_page_that_points_its_name_here_reads_nothing(served: str, host: str, status: int) -> None:
    for path in ("/health", "/metrics", "/api/v1/evictions"):
        assert httpx.get(served + path, headers={"Host": host}, timeout=PATIENT_S).status_code == status


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served")
    with serving(folder, 'allowed_hosts = ["Clearway.example.org"]') as service:
        yield service.address


def test_names_by_which_the_daemon_is_known() -> None:
    api = parse_config("[api]\n", "here").api
    assert known_hosts(api) == {"localhost", "127.0.0.1", socket.gethostname().lower()}
    assert known_hosts(api.model_copy(update={"allowed_hosts": ("*",)})) is None


def test_a_head_of_any_length_is_not_taken(served: str) -> None:
    """Whether it comes at once or a little at a time."""
    host, _, port = served.removeprefix("http://").partition(":")
    for size, status in ((8_000, b"200"), (20_000, b"431"), (100_000, b"431"), (1_000_000, b"431")):
        for step in (size + 100, 4_096):
            with socket.create_connection((host, int(port)), timeout=PATIENT_S) as connection:
                head = b"GET /liveness HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * size + b"\r\n\r\n"
                said = b""
                try:
                    for start in range(0, len(head), step):
                        connection.sendall(head[start : start + step])
                    said = connection.recv(65_536)
                except (BrokenPipeError, ConnectionResetError):  # closed while it was still being sent
                    assert status == b"431"
                    continue
                assert said.split()[1] == status, (size, step, said[:200])
    many = {f"X-{number}": "y" * 50 for number in range(1_000)}
    assert httpx.get(f"{served}/liveness", headers=many, timeout=PATIENT_S).status_code == 431
    assert httpx.get(f"{served}/liveness?{'z' * 20_000}", timeout=PATIENT_S).status_code == 431
