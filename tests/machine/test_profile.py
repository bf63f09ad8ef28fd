from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from envsolve.errors import UsageError
from envsolve.machine import model
from envsolve.machine.known import dump_machine, load_machine, parse_machine, read_machines
from envsolve.machine.model import SCHEMA, Accelerator, Driver, Gpu, Machine, Platform

text = st.text(st.characters(exclude_categories=["C", "Z"]) | st.just(" "), max_size=12)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def tuples(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return maybe(st.lists(strategy, max_size=3).map(tuple))


cuda = st.builds("{}.{}".format, st.integers(1, 20), st.integers(0, 9))
driver = st.lists(st.integers(0, 999), min_size=0, max_size=2).map(lambda rest: ".".join(map(str, [550, *rest])))
machines = st.builds(
    Machine,
    platform=maybe(
        st.builds(
            Platform,
            os=maybe(st.sampled_from(["linux", "windows"])),
            arch=maybe(st.sampled_from(["x86_64", "aarch64"])),
            libc=maybe(st.sampled_from(["glibc 2.35", "musl 1.2"])),
            distro=maybe(text),
            wsl=maybe(st.booleans()),
            container=maybe(text),
            jetson=maybe(text),
        )
    ),
    driver=maybe(st.builds(Driver, version=maybe(driver), cuda=maybe(cuda), compat_libcuda=maybe(cuda))),
    gpus=tuples(
        st.builds(
            Gpu,
            name=maybe(text),
            compute_capability=maybe(st.builds("{}.{}".format, st.integers(1, 19), st.integers(0, 9))),
            memory_mib=maybe(st.integers(0, 2**40)),
            mig=maybe(st.booleans()),
            uuid=maybe(text),
        )
    ),
    toolkits=tuples(st.builds(model.Toolkit, version=maybe(cuda), path=maybe(text), nvcc=maybe(st.booleans()))),
    host_compilers=tuples(st.builds(model.HostCompiler, kind=text, version=maybe(text), path=maybe(text))),
    python=maybe(st.integers(6, 20).map("3.{}".format)),
    pythons=tuples(st.builds(model.Interpreter, version=text, path=text)),
    installers=tuples(st.builds(model.Installer, name=text, version=maybe(text), path=maybe(text))),
    environment=maybe(st.dictionaries(text, text, max_size=3)),
    sources=st.dictionaries(text, text, max_size=3),
)


@given(machines)
def test_what_is_written_reads_back(machine: Machine) -> None:
    written = dump_machine(machine)
    assert parse_machine(written.encode()) == machine
    assert dump_machine(parse_machine(written.encode())) == written


@given(st.binary(max_size=200))
def test_no_bytes_escape_as_another_error(data: bytes) -> None:
    with pytest.raises(UsageError):
        parse_machine(data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text,
    lambda inner: st.lists(inner) | st.dictionaries(text, inner),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(["platform", "driver", "gpus", "python", "sources", "toolkits", "pythons"]), json_values
    )
)
def test_no_json_escapes_as_another_error(fields: dict[str, Any]) -> None:
    try:
        parse_machine(json.dumps({"schema": SCHEMA, **fields}).encode())
    except UsageError as error:
        assert error.hint


def test_every_documented_field_is_written() -> None:
    written = json.loads(dump_machine(Machine(platform=Platform(), driver=Driver(), gpus=(Gpu(),))))
    assert set(written) == set(Machine.__struct_fields__)
    assert written["schema"] == SCHEMA
    assert written["platform"] == dict.fromkeys(["os", "arch", "libc", "distro", "wsl", "container", "jetson"])
    assert written["driver"] == dict.fromkeys(["version", "cuda", "compat_libcuda"])
    assert written["gpus"] == [dict.fromkeys(["name", "compute_capability", "memory_mib", "mig", "uuid"])]
    assert written["toolkits"] is None


@pytest.mark.parametrize(
    ("fields", "machine"),
    [
        ({}, Machine()),
        ({"gpus": None, "sources": None, "platform": {"os": None}}, Machine(platform=Platform())),
        ({"gpus": [None, {"name": None}]}, Machine(gpus=(Gpu(), Gpu()))),
        ({"invented": 1, "driver": {"version": "550", "x": []}}, Machine(driver=Driver("550"))),
        (
            {"host_compilers": [None, {"version": "12"}, {"kind": "gcc"}]},
            Machine(host_compilers=(model.HostCompiler("gcc"),)),
        ),
        ({"platform": {"os": "Linux", "arch": "ARM64"}}, Machine(platform=Platform("linux", "aarch64"))),
        ({"gpus": [{"compute_capability": "sm_89"}]}, Machine(gpus=(Gpu(compute_capability="8.9"),))),
        ({"python": "3.12.4"}, Machine(python="3.12")),
        ({"environment": {"CC": None, "CXX": "g++"}}, Machine(environment={"CXX": "g++"})),
    ],
)
def test_files_of_other_tools(fields: dict[str, Any], machine: Machine) -> None:
    assert parse_machine(json.dumps({"schema": SCHEMA, **fields}).encode("utf-8-sig")) == machine


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"gpus": [{"name": 4090}]}, "gpus[0].name: expected `str"),
        ({"gpus": {"name": "x"}}, "gpus: expected `array"),
        ({"gpus": [{}, {"compute_capability": "99.9"}]}, 'gpus[1].compute_capability: "99.9"'),
        ({"gpus": [{"compute_capability": "0.0"}]}, "gpus[0].compute_capability"),
        ({"gpus": [{"compute_capability": "eight"}]}, "gpus[0].compute_capability"),
        ({"gpus": [{"compute_capability": 8.9}]}, "gpus[0].compute_capability: expected `str"),
        ({"gpus": [{"memory_mib": -1}]}, "gpus[0].memory_mib"),
        ({"gpus": [{"memory_mib": True}]}, "gpus[0].memory_mib"),
        ({"driver": {"version": "latest"}}, "driver.version"),
        ({"driver": {"cuda": "twelve"}}, "driver.cuda"),
        ({"driver": {"cuda": "12"}}, "driver.cuda"),
        ({"driver": "550.54"}, "driver: expected `object"),
        ({"driver": {"compat_libcuda": True}}, "driver.compat_libcuda"),
        ({"platform": {"libc": "2.35"}}, "platform.libc"),
        ({"python": "2.7"}, "python"),
        ({"python": 3.12}, "python: expected `str"),
        ({"toolkits": [{"version": "new"}]}, "toolkits[0].version"),
        ({"schema": "envsolve.machine/3"}, "schema is 'envsolve.machine/3'"),
        ({"schema": None}, "there is no schema"),
    ],
)
def test_faults_name_the_field(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_machine(json.dumps({"schema": SCHEMA, **fields}).encode(), name="m.json")
    assert words in caught.value.message and caught.value.message.startswith("m.json: ")
    assert caught.value.hint


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\x7fELF\x00\xff", b"[" * 100_000, b'{"schema": "\xff"}'])
def test_what_is_no_machine_file(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "m.json"
    path.write_bytes(data)
    with pytest.raises(UsageError) as caught:
        load_machine(path)
    assert str(path) in caught.value.message and caught.value.hint


def test_missing_files_folders_and_devices(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path, Path("/dev/zero"), tmp_path / "\0"):
        with pytest.raises(UsageError):
            load_machine(path)


def test_a_folder_stands_for_its_files(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.json").write_text(dump_machine(Machine(sources={"name": name})))
    (tmp_path / "notes.txt").write_text("not a machine")
    single = tmp_path / "a.json"
    assert [m.sources["name"] for m in read_machines([tmp_path, single])] == ["a", "b", "a"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no machine file"):
        read_machines([tmp_path / "empty"])


def with_gpu_name(name: str) -> bytes:
    return json.dumps({"schema": SCHEMA, "gpus": [{"name": name}], "environment": {"A": name}}).encode()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("NVIDIA\nH100", "NVIDIA H100"),
        ("\x1b[2JH100\x07", "?[2JH100?"),
        ("H100 \u202e001H", "H100 ?001H"),
        ("\x9b31mH100\x7f", "?31mH100?"),
        ("H100 \u00e9", "H100 \u00e9"),
    ],
)
def test_a_name_cannot_fool_a_terminal(name: str, shown: str) -> None:
    machine = parse_machine(with_gpu_name(name))
    assert machine.gpus is not None
    assert machine.gpus[0].name == shown
    assert machine.environment == {"A": shown}


def test_a_text_without_end_is_refused_and_a_long_variable_is_not() -> None:
    with pytest.raises(UsageError, match="1001 characters, more than 1000"):
        parse_machine(with_gpu_name("x" * 1001))
    parse_machine(json.dumps({"schema": SCHEMA, "environment": {"LD_LIBRARY_PATH": "/a/b:" * 1000}}).encode())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no pipes")
def test_a_machine_file_is_a_regular_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    for path in (tmp_path / "pipe.json", Path("/dev/zero")):
        with pytest.raises(UsageError, match="a pipe or a device"):
            load_machine(path)


def test_accelerators_of_all_vendors_are_written_and_read() -> None:
    radeon = Accelerator("amd", "Radeon RX 7900 XTX", "gfx1100", 24560)
    machine = Machine(gpus=(Gpu("NVIDIA L4", "8.9", 23034, False, "GPU-1"),), accelerators=(radeon,))
    written = json.loads(dump_machine(machine))
    assert [one["vendor"] for one in written["accelerators"]] == ["nvidia", "amd"]
    assert written["accelerators"][0] == {
        "vendor": "nvidia",
        "name": "NVIDIA L4",
        "arch": "8.9",
        "memory_mib": 23034,
        "uuid": "GPU-1",
        "mig": False,
    }
    assert parse_machine(json.dumps(written).encode()) == machine


def test_a_file_may_list_its_gpus_only_as_accelerators() -> None:
    listed = [{"vendor": "amd", "arch": "gfx1100"}, {"vendor": "nvidia", "arch": "sm_90", "uuid": "GPU-1"}]
    machine = parse_machine(json.dumps({"schema": SCHEMA, "accelerators": listed}).encode())
    assert machine.gpus == (Gpu(compute_capability="9.0", uuid="GPU-1"),)
    assert machine.accelerators == (Accelerator("nvidia", arch="9.0", uuid="GPU-1"), Accelerator("amd", arch="gfx1100"))


def test_files_of_the_first_schema_are_read() -> None:
    old = {"schema": "envsolve.machine/1", "gpus": [{"name": "NVIDIA L4", "compute_capability": "8.9"}]}
    machine = parse_machine(json.dumps(old).encode())
    assert machine == Machine(gpus=(Gpu("NVIDIA L4", "8.9"),))
    assert machine.accelerators == (Accelerator("nvidia", "NVIDIA L4", "8.9"),)


def test_other_gpus_of_a_changed_machine_stay() -> None:
    machine = Machine(gpus=(Gpu("NVIDIA L4", "8.9"),), accelerators=(Accelerator("amd"),))
    assert replace(machine, gpus=()).accelerators == (Accelerator("amd"),)
    assert replace(Machine(gpus=(Gpu(),)), gpus=None).accelerators is None
    assert Machine(gpus=()).accelerators == ()
