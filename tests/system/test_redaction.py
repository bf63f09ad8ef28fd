"""What users publish names neither them nor their computers, and holds no secret."""

from __future__ import annotations

import socket
import time

import pytest

from envsolve.system.redaction import Redaction, is_secret

# Committed files hold no home directories.
HOMES, MAC_HOMES = "/home", "/Users"
ALICE = {"HOME": f"{HOMES}/alice", "USER": "alice", "HOSTNAME": "gpu-node7.corp.example", "DEPLOY_TOKEN": "abc-def-123"}


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (f'File "{HOMES}/alice/train.py", line 3', 'File "~/train.py", line 3'),
        (f"{HOMES}/bob/x and bob's", f"{HOMES}/(user)/x and bob's"),
        (r"C:\Users\Bob\env", r"C:\Users\(user)\env"),
        ("gpu-node7:123:456 [0] NCCL INFO", "(host):123:456 [0] NCCL INFO"),
        ("bob@login1:~$ make", "(user)@(host):~$ make"),
        ("mail bob.b@corp.example", "mail (email)"),
        ("https://bob:s3:cr@et@pypi.corp/simple", "https://(login)@(host-1)/simple"),
        ("git+ssh://git@git.corp:22/x", "git+ssh://(login)@(host-1):22/x"),
        ("https://a.corp https://b.corp https://a.corp", "https://(host-1) https://(host-2) https://(host-1)"),
        ("https://download.example/whl/cu128", "https://download.example/whl/cu128"),
        ("file:///opt/wheels http://localhost:80/x", "file:///opt/wheels http://localhost:80/x"),
        ("https://download.example/t/tk-12345678/conda", "https://download.example/t/(secret)/conda"),
        ("x?sig=abcd&v=2 x?X-Amz-Signature=99", "x?sig=(secret)&v=2 x?X-Amz-Signature=(secret)"),
        ("HF_TOKEN=hf_abcdefghijkl", "HF_TOKEN=(secret)"),
        ("Authorization: Basic YWxpY2U6eA==", "Authorization: (secret)"),
        ("npm_abcdefghijklmnop dckr_pat_abcdefghijkl AIzaSyA1234567890", "(secret) (secret) (secret)"),
        ("auth = Basic dXNlcjpwYXNz", "auth = Basic (secret)"),
        ("Set-Cookie: session=0123; path=/", "Set-Cookie: (secret)"),
        ("https://hooks.example/services/T0000000/B0000000/XXXX", "https://(host-1)/services/(secret)"),
        ("AccountName=a;AccountKey=abcd==;x", "AccountName=a;AccountKey=(secret);x"),
        ("uv --password hunter2 --token=x1y2", "uv --password (secret) --token=(secret)"),
        ("machine a.b login joe password pa55w0rd!", "machine a.b login (secret)"),
        ("machine a.b\n  login joe\n  password pa55w0rd!\n", "machine a.b\n  login (secret)\n"),
        ("default password pa55w0rd! login joe", "default password (secret) login joe"),
        ("https://bob:a#b?c/d,e@h.corp/x", "https://(login)@(host-1)/x"),
        ("https://h.corp:8080/@scope/x", "https://(host-1):8080/@scope/x"),
        ("//bob:pw@h.corp/x bob:pw@h.corp:3128", "//(login)@h.corp/x (login)@h.corp:3128"),
        ("torch:2.9@sha256:0123 and user: a@b", "torch:2.9@sha256:0123 and user: a@b"),
        ("curl -u bob:pw1 --proxy-user=bob:pw2 x", "curl -u (secret) --proxy-user=(secret) x"),
        ("docker run -u 1000:1000 x", "docker run -u 1000:1000 x"),
        (
            "sshpass -p pw1 ssh; export SMTP_PASS=pw1; Pwd=pw1;",
            "sshpass -p (secret) ssh; export SMTP_PASS=(secret); Pwd=(secret);",
        ),
        ("PWD=/x OLDPWD=/y bypass=1", "PWD=/x OLDPWD=/y bypass=1"),
        ("X-JFrog-Art-Api: AKCpabcdefghij12", "X-JFrog-Art-Api: (secret)"),
        ("wandb login 0123456789abcdef0123456789abcdef01234567", "wandb login (secret)"),
        ("password: 'my secret phrase', next", "password: (secret), next"),
        ("ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQDa joe", "ssh-rsa (secret) joe"),
        (r"C:\Users\Bob B\env and C:\Users\Bob only", r"C:\Users\(user)\env and C:\Users\(user) only"),
        (r"\\fileserver\share\x", r"\\(host)\share\x"),
        ("ether 00:1a:2b:3c:4d:5e fe80::1ff:fe23:4567", "ether (device) (device)"),
        ("00000000:00:1E.0, 12:34:56, sort_keys=True, key: 3", "00000000:00:1E.0, 12:34:56, sort_keys=True, key: 3"),
        ("undefined symbol: _ZN3c1020throwNullDataPtrErrorEv", "undefined symbol: _ZN3c1020throwNullDataPtrErrorEv"),
        ("max_new_tokens=5 tokenizer(x)", "max_new_tokens=5 tokenizer(x)"),
        ("the value abc-def-123 leaked", "the value (secret) leaked"),
        ("GPU-5a1b2c3d-0000-1111-2222-333344445555", "GPU-(uuid)"),
        ("torch 2.8.0+cu128, nvidia-cublas-cu12 12.9.1.4", "torch 2.8.0+cu128, nvidia-cublas-cu12 12.9.1.4"),
        ("no kernel image is available", "no kernel image is available"),
    ],
)
def test_a_text_keeps_everything_but_names_and_secrets(text: str, clean: str) -> None:
    assert Redaction(ALICE, ["download.example"]).text(text) == clean


def test_a_user_named_by_a_home_directory_is_replaced_in_every_text() -> None:
    clean = Redaction({}, (), [f"{HOMES}/carol/x"])
    assert clean.value({"a": ["carol ran it", 3, None], "b": f"{MAC_HOMES}/carol/x"}) == {
        "a": ["(user) ran it", 3, None],
        "b": f"{MAC_HOMES}/(user)/x",
    }


def test_the_host_s_own_name_is_replaced() -> None:
    if len(socket.gethostname()) > 2 and socket.gethostname() != "localhost":
        assert socket.gethostname() not in Redaction({}, ()).text(f"on {socket.gethostname()} now")


def test_common_names_stay() -> None:
    assert Redaction({"HOME": "/root", "USER": "root"}, ()).text("root of the tree") == "root of the tree"


def test_the_password_of_a_url_in_a_variable_is_replaced_by_itself_too() -> None:
    proxy = {"HTTPS_PROXY": "http://bob:pr0xyp4ss@proxy.corp:3128", "UV_INDEX": "corp=https://tok:s3cr3tpw@i.corp/s"}
    assert Redaction(proxy, ()).text("407 for pr0xyp4ss, 401 for s3cr3tpw") == "407 for (secret), 401 for (secret)"


SECRET_NAMES = ("HF_TOKEN", "UV_INDEX_CORP_PASSWORD", "AWS_SECRET_ACCESS_KEY", "NGC_API_KEY", "PGPASSWORD", "GHTOKEN")
MORE_SECRET_NAMES = ("SMTP_PASS", "MYSQL_PWD", "WANDB_KEY", "AZURE_STORAGE_CONNECTION_STRING", "UV_INDEX_X_USERNAME")


@pytest.mark.parametrize("name", [*SECRET_NAMES, *MORE_SECRET_NAMES])
def test_variables_with_secrets_are_known_by_their_names(name: str) -> None:
    assert is_secret(name)
    assert not any(map(is_secret, ["PWD", "OLDPWD", "PIP_INDEX_URL", "COMPASS", "TOKENIZERS_PARALLELISM"]))


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "a.",
        "a@",
        "://",
        "a_key",
        "/t/aaaaaaaaa",
        "@b.",
        "a:",
        "token='",
        "C:\\Users\\a b",
        "login ",
        "://a:",
        "a:b",
        "-u a:",
        "password ",
    ],
)
def test_a_long_word_takes_linear_time(piece: str) -> None:
    text = piece * 20_000
    start = time.process_time()
    Redaction({}, ()).text(text)
    assert time.process_time() - start < 2
