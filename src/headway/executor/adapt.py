"""One interface for whatever a user wrote: a `Model`, any class with `predict`, or a function.

Knows the shapes a model may have and where to find it (`app.py[:Name]`); must not know processes
or batching.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import msgspec

from headway.core.batch import Form
from headway.core.config import ModelConfig
from headway.core.errors import UserError
from headway.core.ports import ModelInfo
from headway.executor.model import Model


class FunctionModel:
    """A bare `predict(batch)` function as a model."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.predict = function


class Served:
    """A user's model behind one interface. `None` stands for what it does not define."""

    def __init__(self, model: Any, config: ModelConfig) -> None:
        self.model = model
        self.config = config
        self.predict: Callable[[Any], Any] = model.predict
        self.decode: Callable[[bytes, str], Any] | None = _own(model, "decode")
        self.encode: Callable[[Any], Any] | None = _own(model, "encode")
        self.measure: Callable[[Any], float] | None = _own(model, "measure")
        self.warmup: Callable[[], Sequence[Any]] | None = _own(model, "warmup")
        self.is_async = inspect.iscoroutinefunction(self.predict) or inspect.isasyncgenfunction(
            self.predict
        )
        self.streams = bool(getattr(model, "streams", False)) or (
            inspect.isgeneratorfunction(self.predict) or inspect.isasyncgenfunction(self.predict)
        )
        self.type_in, self.schema_in, self.type_out, self.schema_out = _types_of(self.predict)
        self.info = self._info()

    def load(self) -> Any:
        """Set `config` and run the model's `load`; a coroutine is returned for the caller."""
        try:
            self.model.config = self.config
        except AttributeError:
            pass  # slots or a frozen class: it does not want to know
        load = getattr(self.model, "load", None)
        if load is None:
            return None
        awaitable = load()
        self.info = self._info()  # shapes may only be known once loaded
        return awaitable

    def _info(self) -> ModelInfo:
        model = self.model
        form: Form = getattr(model, "form", "list")
        if form not in get_args(Form):
            raise UserError(
                400, "bad_model", f"form is {form!r}", hint="one of " + ", ".join(get_args(Form))
            )
        return ModelInfo(
            name=self.config.name,
            version=str(getattr(model, "version", "")),
            form=form,
            size_unit=str(getattr(model, "size_unit", "bytes")),
            max_batch_size=getattr(model, "max_batch_size", None),
            padded_sizes=tuple(getattr(model, "padded_sizes", ())),
            measures=self.measure is not None,
            streams=self.streams,
            embeds=bool(getattr(model, "embeds", False)),
            inputs=tuple(getattr(model, "inputs", ())),
            outputs=tuple(getattr(model, "outputs", ())),
            schema_in=self.schema_in,
            schema_out=self.schema_out,
        )


def _own(model: Any, name: str) -> Any:
    """The model's own method, or None where it is missing or the base class's."""
    method = getattr(model, name, None)
    if method is None or getattr(method, "__func__", None) is getattr(Model, name):
        return None
    return method


def _types_of(predict: Any) -> tuple[Any, dict[str, object], Any, dict[str, object]]:
    function = getattr(predict, "__func__", predict)
    notes = getattr(function, "__annotations__", None)
    if not notes:
        return None, {}, None, {}
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError, AttributeError) as error:
        print(
            f"headway: the annotations of predict cannot be read ({error}); "
            "items are not validated",
            file=sys.stderr,
        )
        return None, {}, None, {}
    given = [value for name, value in hints.items() if name != "return"]
    type_in = _item_type(given[0]) if given else None
    type_out = _item_type(hints.get("return"))
    schema_in = _schema(type_in)
    return type_in if schema_in else None, schema_in, type_out, _schema(type_out)


def _item_type(note: Any) -> Any:
    args = get_args(note)
    origin = typing.get_origin(note)
    if len(args) != 1 or not (isinstance(origin, type) and issubclass(origin, Sequence)):
        return None
    item = args[0]
    if isinstance(item, typing.TypeVar) or item in (Any, object, bytes, bytearray, memoryview):
        return None
    # A plain `dict` or `list` promises nothing that JSON itself does not.
    return item


def _schema(item: Any) -> dict[str, object]:
    if item is None:
        return {}
    try:
        return msgspec.json.schema(item)
    except TypeError:
        return {}  # arrays and the like: no JSON form, so nothing to validate


def load_model(path: str, config: ModelConfig) -> Served:
    """Find and make the model that `path` names; `load` is not yet called. Raises UserError."""
    if path == "mock":
        return Served(_attribute("headway.executor.toy", "Echo")(), config)
    target, _, name = path.partition(":") if not Path(path).exists() else (path, "", "")
    if target.endswith(".onnx"):
        return Served(_attribute("headway.executor.onnx_model", "OnnxModel")(target), config)
    if target.endswith(".py"):
        return Served(made(_find(_load_file(Path(target)), name, target)), config)
    if name and not Path(target).exists():
        # Last, so that a file here never hides a library.
        sys.path.append(str(Path.cwd()))
        return Served(made(_find(importlib.import_module(target), name, target)), config)
    raise UserError(
        400,
        "no_model",
        f"{path!r} is not a model",
        hint="name a file app.py[:Name], an x.onnx, or package.module:Name",
    )


def _attribute(module: str, name: str) -> Any:
    # Named modules are loaded when a model needs them: a worker that serves plain Python must not
    # pay for onnxruntime or numpy.
    return getattr(importlib.import_module(module), name)


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UserError(
            400,
            "no_model",
            f"no file {str(path)!r}",
            hint="give the path of a Python file that holds a model",
        )
    path = path.resolve()
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_served"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _find(module: ModuleType, name: str, target: str) -> Any:
    if name:
        found = getattr(module, name, None)
        if found is None:
            raise UserError(
                400,
                "no_model",
                f"{target} has no {name!r}",
                hint="it has " + (", ".join(_candidates(module)) or "no class with predict"),
            )
        return found
    names = _candidates(module)
    if not names and "predict" in vars(module):
        return module.predict
    if len(names) == 1:
        return getattr(module, names[0])
    if "model" in vars(module):
        return module.model
    if not names:
        raise UserError(
            400,
            "no_model",
            f"{target} holds no model",
            hint="define a function predict(batch) or a class with a method predict(self, batch)",
        )
    raise UserError(
        400,
        "no_model",
        f"{target} holds {len(names)} models: {', '.join(names)}",
        hint=f"say which: {target}:{names[0]}",
    )


def _candidates(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, type)
        and value.__module__ == module.__name__
        and callable(getattr(value, "predict", None))
        and not name.startswith("_")
    ]


def made(found: Any) -> Any:
    """A model of a class, an instance or a function. Raises UserError."""
    if isinstance(found, type):
        return found()
    if callable(getattr(found, "predict", None)):
        return found
    if callable(found):
        return FunctionModel(found)
    raise UserError(
        400,
        "no_model",
        f"{found!r} is no model",
        hint="a model is a function, or has a method predict(batch)",
    )
