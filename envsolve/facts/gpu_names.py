"""GPU names as people write them, matched to the catalogue's models. Never a guess.

A name is the sequence of its words; spacing, case and vendor words do not count. A shortened name is accepted only if
every model that it could mean has the same compute capability.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.hardware import GpuModel
from envsolve.values import ComputeCapability

# How programs write a GPU (``lspci``, ``nvidia-smi -L``, virtual GPUs), reduced to PCI device ids and names.
#
# Pure text: whether there is a model of that id or name is for :mod:`envsolve.facts.gpu_names` to say. Most names are
# plain ones, so that patterns are compiled when one is first held to them.


# "[10de:2684]" as lspci -nn has it, "0x268410DE" as nvidia-smi has it; "Device 2684" is lspci's word for an id that its
# list of names lacks.
_PCI_ID = re.compile(
    r"\b10de:([0-9a-f]{4})\b|\b0x([0-9a-f]{4})10de\b|\bNVIDIA Corporation Device ([0-9a-f]{4})\b", re.IGNORECASE
)
# "AD102 [GeForce RTX 4090]", "AD106M [GeForce RTX 4070 Max-Q / Mobile]": the chip, then the boards that have it.
_CHIP_AND_BOARDS = r"\b(?:G[A-Z]|TU|AD)\d{2,3}\w*(?: / [\w-]+)? \[([^]]*[^]:\d][^]]*)\]"
_FORM = r" (?:Mobile|Max-Q)$"
_REVISION = r"(?: Lite Hash Rate| Rev\. \w| Refresh)+$"
_SMI_LINE = r"(?i)\s*GPU \d+:\s*(.+?)\s*\(UUID:.*\)\s*"
# A virtual GPU's name is the board's, then an optional count of slices, the memory in GB, and the kind of licence.
_VIRTUAL = r"(?i)\s*(?:NVIDIA |GRID )*(.+?)-(?:\d-)?\d{1,3}(?:[ABCQ]|CME)\s*"
# Letters behind a virtual GPU's board tell its memory and socket: V100DX, A100D, H100XM, RTX8000P.
_BOARD_LETTERS = r"(?<=\d)(?:D|X|S|L|P|C|B|DX|XM|XL|XS|LX)$"


def pci_ids(text: str) -> tuple[str, ...]:
    """NVIDIA's PCI device ids in the text, as the catalogue writes them: ``2684``."""
    return tuple(dict.fromkeys((match[1] or match[2] or match[3]).lower() for match in _PCI_ID.finditer(text)))


def names(text: str) -> Iterator[str]:
    """Candidate names of the GPU in the text, most likely first: the text itself, then names found inside output."""
    yield text
    if match := re.fullmatch(_SMI_LINE, text):
        yield match[1]
    if match := re.search(_CHIP_AND_BOARDS, text):
        yield from _boards(match[1])
    if match := re.fullmatch(_VIRTUAL, text):
        yield match[1]
        yield re.sub(_BOARD_LETTERS, "", match[1])


def _boards(text: str) -> Iterator[str]:
    """``GeForce RTX 4070 Max-Q / Mobile`` is one name with two endings; ``A40 / A16`` are two names."""
    first, *others = (re.sub(_REVISION, "", name) for name in text.split(" / "))
    stem = re.sub(_FORM, "", first)
    yield from (f"{stem} {other}" for other in others if re.fullmatch(_FORM, f" {other}"))
    yield first
    yield from (other for other in others if not re.fullmatch(_FORM, f" {other}"))


_COMPUTE_CAPABILITY = re.compile(
    r"(?:cc|compute capability)?\s*(\d{1,2}\.\d)[af]?|((?:sm|compute)_?\d{2,3}[af]?)", re.IGNORECASE | re.ASCII
)
_TRADE_MARKS = re.compile(r"\((?:r|tm)\)|[®™]", re.IGNORECASE)
# NVML's name of a MIG device: the GPU's own name, then the profile.
_MIG_PROFILE = re.compile(r"\s+MIG\b.*$", re.IGNORECASE)
_WORD = re.compile(r"[a-z0-9]+")
# Words that people glue to the number after or before them.
_GLUED = re.compile(
    r"^(geforce|quadro|tesla|titan|jetson|rtx|gtx|gts|gt)(?=[a-z]?\d)|(?<=\d{3})(?=(?:ti|super|laptop|mobile)+$)"
)
_VENDOR = frozenset({"nvidia", "corporation", "geforce", "gpu", "graphics", "card", "generation"})
# Memory size and kind, form factor and bus tell boards apart, not the code that they run.
_BOARD = r"\d+(?:g|gb|gib)|hbm\d?e?|sxm\d?|pcie|pci|oem|max|q|with|design|gddr\d\w?|ecc|tesla|ls|dgxs"
_OWN_MAKER = r"(?i)nvidia|geforce|quadro|tesla|[gr]tx"
# Other makers whose builds of torch are not described: nothing but the name is known.
_OTHER_MAKERS = r"(?i)\b(?:amd|rx ?\d{3,4}\w*|mi\d{2,3}[a-z]?|intel|arc|iris|gaudi\d?|apple|tpu)\b"
# A word for all GPUs of a generation, as the names of the architectures have it.
_GENERATION = re.compile(
    r"(?:nvidia )?([a-z]{3,12}(?: lovelace| ultra)?)(?: (?:gpus?|generation|architecture))?", re.IGNORECASE
)
# Too short to be a model's number; only a part of one ("DGX-1").
_SHORT_NUMBER = re.compile(r"\W*(\d{1,2})\W*", re.ASCII)
_SEPARATE_SIZE = re.compile(r"(\d+)\s+(?=gi?b\b)", re.IGNORECASE)


class UnknownGpuError(UsageError):
    """No model has a similar name."""


def find_gpu(text: str, catalogue: Catalogue) -> GpuModel:
    """The model that ``text`` names, or a nameless one for a compute capability (``sm_90``, ``8.6``, ``cc 8.6``).

    Args:
        text: As a person, ``nvidia-smi`` or ``lspci`` writes it; a PCI device id (``10de:2684``) counts before a name.

    Raises:
        UsageError: No model has that name, or models with different compute capabilities have it; the hint gives the
            nearest names.
    """
    if match := _COMPUTE_CAPABILITY.fullmatch(text.strip()):
        return _by_compute_capability(match[1] or match[2], catalogue)
    if match := _SHORT_NUMBER.fullmatch(text):
        raise UsageError(f'"{text}" is not a GPU', hint=_how_numbers_are_written(match[1], catalogue))
    if generation := _generation(text, catalogue):
        return generation
    words = _words(text)
    found = _with_pci_id(text, catalogue) or next(filter(None, _readings(text, catalogue)), [])
    if not found and not re.search(_OWN_MAKER, text):
        _refuse_other_maker(text, catalogue)
    if not found:
        number = f"; for a driver, write: driver {text}" if text.isdigit() else ""
        raise UnknownGpuError(f'unknown GPU "{text}"', hint=_nearest(words, catalogue) + number)
    if len({model.compute_capability for model in found}) > 1:
        names = "; ".join(f"{model.name} ({model.compute_capability})" for model in found[:8])
        raise UsageError(f'"{text}" can mean GPUs of different compute capabilities', hint=f"choose one: {names}")
    return found[0]


def _refuse_other_maker(text: str, catalogue: Catalogue) -> None:
    """Refuse a GPU of another vendor with the way to that vendor's own builds of torch, which are not judged.

    Raises:
        UsageError: It is such a GPU.
    """
    routes = [route for route in catalogue.vendor_routes if re.search(route.words, text.lower())]
    if routes:
        ways = [f"{f'on {r.system.title()}: ' if r.system else ''}{r.command or f'see {r.page}'}" for r in routes]
        first = routes[0]
        own = f'for PyTorch\'s {first.build} builds (device "{first.device}"): {"; ".join(ways)}'
        hint = f"{own}; to plan for its CPU, write: no gpu"
        raise UsageError(
            f'"{text}" is not an NVIDIA GPU but one of {first.name}: whether torch runs on it is not judged', hint=hint
        )
    if re.search(_OTHER_MAKERS, text):
        hint = "envsolve knows only GPUs of NVIDIA; to plan for the CPU, write: no gpu"
        raise UsageError(f'"{text}" is not an NVIDIA GPU', hint=hint)


def _with_pci_id(text: str, catalogue: Catalogue) -> list[GpuModel]:
    """Models that have a PCI device id found in the text."""
    ids = pci_ids(text)
    return [model for model in catalogue.gpus if ids and not set(ids).isdisjoint(model.pci_ids)]


def _readings(text: str, catalogue: Catalogue) -> Iterator[list[GpuModel]]:
    """The models that each interpretation of the text can mean."""
    for name in names(text):
        words = _words(name)
        yield _named(words, catalogue) or _named(_without_board(words), catalogue)


def _generation(text: str, catalogue: Catalogue) -> GpuModel | None:
    """A GPU of the generation that a text names (``Turing``), if all discrete GPUs of it have one compute capability.

    Raises:
        UsageError: They have several.
    """
    named = _GENERATION.fullmatch(text.strip())
    if named is None:
        return None
    word = named[1].lower()
    # The GPUs of a Jetson have names of their own, and a person who means one says so.
    of_it = [cc for cc, one in catalogue.architectures.items() if not one.island and _is_of(word, one.name.lower())]
    if len(of_it) == 1:
        return _by_compute_capability(of_it[0], catalogue)
    listed = [(cc, next((m.name for m in catalogue.gpus if m.compute_capability == cc), None)) for cc in of_it]
    choice = "; ".join(f"{cc} (such as {name})" if name else cc for cc, name in listed)
    if not listed:
        return None
    raise UsageError(
        f'"{text}" is a generation with GPUs of different compute capabilities', hint=f"choose one: {choice}"
    )


def _is_of(word: str, architecture: str) -> bool:
    return architecture == word or architecture.startswith(f"{word} ")


def _how_numbers_are_written(number: str, catalogue: Catalogue) -> str:
    dotted = f"{number[:-1]}.{number[-1]}"
    if dotted in catalogue.architectures:
        return f"compute capability {dotted} is written {dotted} or sm_{number}"
    return "write a name (RTX 4090) or a compute capability (8.9)"


def _by_compute_capability(text: str, catalogue: Catalogue) -> GpuModel:
    cc = ComputeCapability.parse(text)
    known = catalogue.architectures.get(str(cc))
    if known is None:
        listed = f"known: {', '.join(catalogue.architectures)}"
        version = f"; for a CUDA version, write: cuda {text}" if text[:1].isdigit() else ""
        raise UsageError(f"no known GPU has compute capability {cc}", hint=f"{listed}{version}")
    return GpuModel(cc.sm, known.compute_capability, known.evidence, known.source)


def _named(words: tuple[str, ...], catalogue: Catalogue) -> list[GpuModel]:
    """Models that the words can mean, best first; empty for none.

    A model's own full name means that model. An alias means its model and those whose names contain it unchanged.
    Anything shorter means all models whose names contain its words in any order, and one of the words unchanged:
    "RTX 6000" matches a Quadro, an Ada and a Blackwell GPU, but not "Quadro 6000", a GPU older than these.
    """
    key = "".join(words)
    if not key:
        return []
    # A name without one of its characters is not it: most are told apart by that, and never taken into words.
    spelt = [model for model, characters in _characters(catalogue) if characters.issuperset(key)]
    exact = [model for model in spelt if "".join(_words(model.name)) == key]
    return exact or _shortened(words, catalogue)


def _shortened(words: tuple[str, ...], catalogue: Catalogue) -> list[GpuModel]:
    """Models that have the words as an alias, or in longer names."""
    table, key = _forms(catalogue), "".join(words)
    aliased = [model for model, forms in table if any("".join(form) == key for form in forms)]
    wide = [(model, forms) for model, forms in table if any(set(words) <= set(form) for form in forms)]
    lengths = [(_shortest(forms, words), model) for model, forms in wide]
    holding = [model for length, model in sorted(lengths, key=lambda held: held[0]) if length]
    if aliased:
        return aliased + [model for model in holding if model not in aliased]
    # Without a number a word like "Ada" names a family: enough to say that it is ambiguous, never to pick a model.
    one_family = not _has_number(words) and len({model.compute_capability for model, _ in wide}) == 1
    if not holding or one_family:
        return []
    return holding + [model for model, _ in wide if model not in holding]


def _shortest(forms: Iterable[tuple[str, ...]], words: tuple[str, ...]) -> int:
    """The number of words of the shortest form that contains the words unchanged; 0 if none does."""
    return min((len(form) for form in forms if _holds(form, words)), default=0)


def _holds(form: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """Whether ``words`` occur in ``form`` next to each other and in order."""
    return any(form[start : start + len(words)] == words for start in range(len(form) - len(words) + 1))


def _has_number(words: tuple[str, ...]) -> bool:
    return any(character.isdigit() for word in words if not re.fullmatch(_BOARD, word) for character in word)


@lru_cache(maxsize=2)
def _characters(catalogue: Catalogue) -> tuple[tuple[GpuModel, frozenset[str]], ...]:
    """Every model with the characters that are in its own name."""
    return tuple((model, frozenset(model.name.lower())) for model in catalogue.gpus)


@lru_cache(maxsize=2)
def _forms(catalogue: Catalogue) -> tuple[tuple[GpuModel, tuple[tuple[str, ...], ...]], ...]:
    """Every model with its names as words, its own first."""
    return tuple((model, tuple(map(_words, (model.name, *model.aliases)))) for model in catalogue.gpus)


@lru_cache(maxsize=4096)
def _words(text: str) -> tuple[str, ...]:
    text = _SEPARATE_SIZE.sub(r"\1", _MIG_PROFILE.sub("", _TRADE_MARKS.sub("", text)))
    return tuple(part for word in _WORD.findall(text.lower()) for part in _parts(word))


@lru_cache(maxsize=4096)
def _parts(word: str) -> tuple[str, ...]:
    """A word unchanged or split (``rtx4090``), without vendor words; most words are in many names."""
    return tuple(part for part in _GLUED.sub(r"\1 ", word).split() if part not in _VENDOR)


def _without_board(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for word in words if not re.fullmatch(_BOARD, word))


def _nearest(words: tuple[str, ...], catalogue: Catalogue) -> str:
    """Advice with the known names most like the words."""
    names = {
        "".join(key): model.name
        for model, forms in _forms(catalogue)
        for form in forms
        for key in (form, _without_board(form))
    }
    from difflib import get_close_matches

    close = dict.fromkeys(names[key] for key in get_close_matches("".join(words), names, 8, 0.6))
    nearest = f"nearest known: {', '.join(list(close)[:5])}; or" if close else "use its full name, or"
    return f"{nearest} give the compute capability (8.9)"


def split_machine_name(words: Sequence[str], catalogue: Catalogue) -> list[str]:
    """The parts of ``RTX 5070 Ti on WSL``: what comes before a name that the catalogue has for parts, and that name."""
    for at in range(1, len(words)):
        if any(re.fullmatch(one.words, " ".join(words[at:]).lower()) for one in catalogue.machine_names):
            return [" ".join(words[: at - (words[at - 1].lower() in ("on", "with", "and"))]), " ".join(words[at:])]
    return []
