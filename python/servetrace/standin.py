"""A stand-in for the module ray, for hooks that ask Ray for the current task and request.

An on_start such as RayServeSpanProcessor of Anyscale's tracing guide calls
ray.get_runtime_context() and ray.serve.context. In a plugin there is no Ray. The stand-in
answers from the span of that on_start: from ray.* attributes, or else from serve.task_id
and serve.request_id, which servetrace puts on each span of a request.
"""

from __future__ import annotations

import contextvars
import importlib.util
import sys
import types
from typing import Any

# The span of the on_start in progress.
CURRENT: contextvars.ContextVar[Any] = contextvars.ContextVar("span", default=None)

_ACTOR, _JOB = -32, -8  # a task id ends in the actor's id, and that in the job's


def install(job: str, node: str) -> bool:
    """Puts the stand-in into sys.modules, unless the module ray is installed. It returns true if it did.

    job and node are the answers outside of requests."""
    if _installed():
        return False
    context = _RuntimeContext(job, node)
    ray = _module("ray", get_runtime_context=lambda: context, is_initialized=lambda: True)
    ray.serve = _module("ray.serve")
    ray.serve.context = _module("ray.serve.context", _serve_request_context=_RequestContext())
    return True


def _installed() -> bool:
    try:
        spec = importlib.util.find_spec("ray")
    except ValueError:  # an unusual module of this name
        return True
    return spec is not None and spec.origin is not None  # a folder without __init__.py has no origin


def _module(name: str, **members: Any) -> Any:
    module = types.ModuleType(name, __doc__)
    module.__path__ = []  # so that submodules can be imported
    vars(module).update(members)
    vars(module)["__getattr__"] = lambda member: _missing(name, member)
    sys.modules[name] = module
    return module


def _missing(name: str, member: str) -> Any:
    if member.startswith("__"):
        raise AttributeError(member)
    raise AttributeError(
        f"the module {name} is a stand-in without {member}: it has get_runtime_context() and"
        " serve.context; install Ray for this interpreter, or do without it"
    )


def _of_span(*keys: str) -> str:
    """Returns the first of the current span's attributes that is set, or an empty text."""
    span = CURRENT.get()
    attributes = span.attributes if span is not None else {}
    return next((str(attributes[key]) for key in keys if attributes.get(key)), "")


class _RuntimeContext:
    """The result of ray.get_runtime_context()."""

    def __init__(self, job: str, node: str):
        self._job, self._node = job, node

    def get_task_id(self) -> str | None:
        return _of_span("ray.task_id", "serve.task_id") or None

    def get_actor_id(self) -> str | None:
        return _of_span("ray.actor_id") or _of_span("serve.task_id")[_ACTOR:] or None

    def get_job_id(self) -> str:
        return _of_span("ray.job_id") or _of_span("serve.task_id")[_JOB:] or self._job

    def get_node_id(self) -> str:
        return self._node


class _RequestContext:
    """The variable ray.serve.context._serve_request_context, and its value."""

    def get(self, _default: Any = None) -> _RequestContext:
        return self

    @property
    def request_id(self) -> str:
        return _of_span("ray.request_id", "serve.request_id", "request_id")

    @property
    def app_name(self) -> str:
        return _of_span("serve.app", "app")

    @property
    def route(self) -> str:
        return _of_span("serve.route", "route")

    @property
    def multiplexed_model_id(self) -> str:
        return _of_span("serve.multiplexed_model_id", "multiplexed_model_id")
