"""Finding a model, and seeing what it defines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.core.config import ModelConfig
from headway.core.errors import UserError
from headway.executor.adapt import Served, load_model


def load(path: Path, text: str, name: str = "") -> Served:
    path.write_text(text)
    return load_model(f"{path}:{name}" if name else str(path), ModelConfig())


CLASS = "class {0}:\n    def predict(self, batch):\n        return batch\n"


def test_the_only_model_of_a_file_needs_no_name(tmp_path: Path) -> None:
    text = "from headway import Model\n" + CLASS.format("Mine")
    assert type(load(tmp_path / "one.py", text).model).__name__ == "Mine"
    function = load(tmp_path / "two.py", "def predict(batch):\n    return batch\n")
    assert function.predict([1]) == [1]


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        (CLASS.format("A") + CLASS.format("B"), "", ["A, B", ":A"]),
        (CLASS.format("A"), "C", ["'C'", "A"]),
        ("x = 1\n", "", ["no model", "predict"]),
        ("x = 1\n", "x", ["no model"]),
        (CLASS.format("A") + "    form = 'wide'\n", "", ["'wide'", "padded"]),
    ],
)
def test_what_is_wrong_with_a_file_is_named(
    tmp_path: Path, text: str, name: str, words: list[str]
) -> None:
    with pytest.raises(UserError) as caught:
        load(tmp_path / "app_wrong.py", text, name)
    said = caught.value.message + caught.value.hint
    assert all(word in said for word in words), said


@pytest.mark.parametrize("path", ["missing.py", "nothing", "no/dir:Name"])
def test_what_is_not_there_is_named(path: str) -> None:
    with pytest.raises((UserError, ImportError), match=r"missing\.py|nothing|no/dir"):
        load_model(path, ModelConfig())


def test_files_beside_the_model_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text("value = 7\n")
    text = "import beside_it\ndef predict(batch):\n    return [beside_it.value] * len(batch)\n"
    assert load(tmp_path / "app_beside.py", text).predict([1]) == [7]


def test_only_what_a_model_defines_counts() -> None:
    class Plain(headway.Model):
        def predict(self, batch: list[Any]) -> list[Any]:
            return batch

    class Full(Plain):
        def decode(self, body: bytes, content_type: str) -> Any:
            return super().decode(body, content_type)

        def measure(self, item: Any) -> float:
            return 1.0

    plain, full = Served(Plain(), ModelConfig()), Served(Full(), ModelConfig())
    assert plain.decode is None and plain.measure is None and not plain.info.measures
    assert full.decode is not None and full.info.measures and full.encode is None
    assert full.decode(b'{"a":1}', "application/json; charset=utf-8") == {"a": 1}
    assert full.decode(b"abc", "text/plain") == b"abc"


def test_arrays_and_unreadable_annotations_are_not_validated(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import numpy as np

    def arrays(batch: list[np.ndarray]) -> list[np.ndarray]:  # type: ignore[type-arg]
        return batch

    arrays.__annotations__ = {"batch": list[np.ndarray], "return": list[np.ndarray]}
    served = Served(type("M", (), {"predict": staticmethod(arrays)})(), ModelConfig())
    assert served.type_in is None and served.info.schema_in == {}
    arrays.__annotations__ = {"batch": "list[Nowhere]"}
    Served(type("M", (), {"predict": staticmethod(arrays)})(), ModelConfig())
    assert "Nowhere" in capsys.readouterr().err


def test_importing_headway_stays_light() -> None:
    script = "import headway, sys; print([m for m in ('numpy', 'asyncio') if m in sys.modules])"
    root = str(Path(headway.__file__).parents[1])
    got = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": root},
    )
    assert got.stdout.strip() == "[]"
