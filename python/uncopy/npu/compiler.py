"""The back ends that an Ascend script asks for, all of them Uncopy: `get_npu_backend`, "npu" and
"npugraph_ex".

`uncopy.backend` is imported when a back end is asked for, never by importing this module.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from uncopy.npu import notes as note_log
from uncopy.npu.config import CompilerConfig, check_graph_options, translate

__all__ = ["compile_fx", "get_compiler", "get_npu_backend", "register_backends"]

Backend = Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]

_ADDS_NOTHING = "adds nothing to the normal plan today"
_NO_DECOMPOSITION = "Uncopy plans operations as captured and decomposes none"


def _make_backend(options: dict[str, Any], notes: list[str]) -> Backend:
    """A backend that hands over the notes of its configuration and those that scopes left until a
    graph is compiled.
    """
    make = importlib.import_module("uncopy.backend").make_backend
    note_log.log_once(notes)

    def backend(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return make(dict(options), [*notes, *note_log.take()])(graph, example_inputs)

    return backend


def get_npu_backend(
    *,
    compiler_config: CompilerConfig | None = None,
    custom_decompositions: Mapping[Any, Callable[..., Any]] | None = None,
) -> Backend:
    """Uncopy as a backend of torch.compile, set up from an Ascend configuration.

    Options that have no effect here are logged once and shown by `uncopy.explain`. Raises TypeError
    for a configuration of another class.
    """
    config = CompilerConfig() if compiler_config is None else compiler_config
    if not isinstance(config, CompilerConfig):
        kind = f"{type(config).__module__}.{type(config).__qualname__}"
        raise TypeError(f"compiler_config must be an uncopy.npu.CompilerConfig, not {kind}")
    if not isinstance(custom_decompositions, Mapping | None):
        kind = type(custom_decompositions).__name__
        raise TypeError(f"custom_decompositions must be a dict of operators, not {kind}")
    options, notes = translate(config)
    if custom_decompositions:
        names = ", ".join(str(operator) for operator in custom_decompositions)
        notes.append(f"custom_decompositions={names}: {_NO_DECOMPOSITION}")
    return _make_backend(options, notes)


def get_compiler(compiler_config: CompilerConfig | None = None) -> Backend:
    """The compiler of one FX graph, for a backend that a script builds itself, such as with
    aot_module_simplified.
    """
    return get_npu_backend(compiler_config=compiler_config)


def compile_fx(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compiles one FX graph under the flat options of npugraph_ex and returns what runs it.

    Raises ValueError for an unknown option or value, TypeError for a wrong type.
    """
    return _graph_backend(options)(graph, example_inputs)


def _graph_backend(options: Mapping[str, Any] | None) -> Backend:
    options = {} if options is None else options
    check_graph_options(options)
    ours, notes = translate(options)
    return _make_backend(ours, [f"backend=npugraph_ex: {_ADDS_NOTHING}", *notes])


class _Refusal:
    """Raises an error on each call: raised inside a backend, Dynamo would give it another type."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __call__(self, *args: Any) -> Any:
        raise self._error.with_traceback(None)


def _npu(graph: torch.fx.GraphModule, example_inputs: Sequence[Any], **extra: Any) -> Any:
    if extra:
        return _Refusal(
            TypeError(
                f'torch.compile(backend="npu") takes no {", ".join(extra)}; set them in a '
                "CompilerConfig and pass torchair.get_npu_backend(compiler_config=...)"
            )
        )
    return get_npu_backend()(graph, example_inputs)


def _npugraph_ex(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Any:
    try:
        if mode is not None:
            raise TypeError('torch.compile(backend="npugraph_ex") takes options, no mode')
        backend = _graph_backend(options)
    except (TypeError, ValueError) as error:
        return _Refusal(error)
    return backend(graph, example_inputs)


def register_backends() -> None:
    """Makes torch.compile know the names "npu" and "npugraph_ex"."""
    torch._dynamo.register_backend(_npu, name="npu")
    torch._dynamo.register_backend(_npugraph_ex, name="npugraph_ex")
