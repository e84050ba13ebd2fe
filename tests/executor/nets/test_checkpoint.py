"""Reading safetensors: what comes out, and files that are not what they say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from headway.executor.nets.checkpoint import read_safetensors  # noqa: E402


def write(path: Path, header: dict[str, object], body: bytes) -> Path:
    head = json.dumps(header).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + body)
    return path


def entry(dtype: str, shape: list[int], start: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def test_reads_names_shapes_and_types(tmp_path: Path) -> None:
    a = torch.arange(6, dtype=torch.float32)
    b = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    body = a.numpy().tobytes() + b.view(torch.int16).numpy().tobytes()
    header = {
        "__metadata__": {"format": "pt"},
        "a": entry("F32", [2, 3], 0, 24),
        "b": entry("BF16", [2], 24, 28),
        "empty": entry("F32", [0, 3], 28, 28),
    }
    got = read_safetensors(write(tmp_path / "m.safetensors", header, body))
    assert sorted(got) == ["a", "b", "empty"]
    assert torch.equal(got["a"], a.reshape(2, 3))
    assert torch.equal(got["b"], b)
    assert tuple(got["empty"].shape) == (0, 3)


def test_a_short_file_names_the_tensor(tmp_path: Path) -> None:
    path = write(tmp_path / "m.safetensors", {"a": entry("F32", [4], 0, 16)}, b"\0" * 8)
    with pytest.raises(ValueError, match="damaged at tensor a"):
        read_safetensors(path)


@pytest.mark.parametrize("body", [b"abc", b"\xff" * 64, (4).to_bytes(8, "little") + b"{no}"])
def test_another_format_is_said(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(body)
    with pytest.raises(ValueError, match="no safetensors file"):
        read_safetensors(path)


def test_an_unknown_type_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "m.safetensors", {"a": entry("F8_E4M3", [4], 0, 4)}, b"\0" * 4)
    with pytest.raises(ValueError, match="a has dtype F8_E4M3"):
        read_safetensors(path)
