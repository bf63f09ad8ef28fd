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


@pytest.mark.parametrize("name", ["HF_TOKEN", "UV_INDEX_CORP_PASSWORD", "AWS_SECRET_ACCESS_KEY", "NGC_API_KEY"])
def test_variables_with_secrets_are_known_by_their_names(name: str) -> None:
    assert is_secret(name)
    assert not is_secret("PWD")
    assert not is_secret("PIP_INDEX_URL")


@pytest.mark.parametrize("piece", ["a", "a.", "a@", "://", "a_key", "/t/aaaaaaaaa", "@b."])
def test_a_long_word_takes_linear_time(piece: str) -> None:
    text = piece * 20_000
    start = time.process_time()
    Redaction({}, ()).text(text)
    assert time.process_time() - start < 2
