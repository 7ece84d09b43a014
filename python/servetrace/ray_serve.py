"""The span processor for Ray Serve's proxies and replicas.

It puts ``serve.task_id``, ``serve.replica_id`` and ``serve.request_id`` on each span.
The plugin's processor "raycontext" makes ``ray.*`` of them: the task id ends in the
actor's id, which ends in the job's.
"""

import ray
from ray.serve import context as serve_context

from servetrace.processor import RelayProcessor

TASK_ID, REPLICA_ID, REQUEST_ID = "serve.task_id", "serve.replica_id", "serve.request_id"
_REPLICA = "SERVE_REPLICA::"  # Ray Serve's prefix of a replica's actor name: APP#DEPLOYMENT#UNIQUEID
_RAY_REQUEST_ID = "request_id"  # Ray Serve's own attribute


class RayProcessor(RelayProcessor):
    """A RelayProcessor that adds Ray's ids. Made in the actor whose spans it gets."""

    def __init__(self, relay, log=None, **options):
        self._ids = {}
        try:
            self._ids = _process_ids()
        except Exception as e:
            log and log.warning("servetrace: spans without Ray's ids: %r", e)
        super().__init__(relay, log, **options)

    def on_start(self, span, parent_context=None):
        try:
            span.set_attributes(self._ids | _request_ids())
        except Exception:
            pass  # an exception here would fail the request

    def added(self, attributes):
        """Returns the request id of a replica span. Ray Serve sets it after the start."""
        if REQUEST_ID not in attributes and _RAY_REQUEST_ID in attributes:
            return {REQUEST_ID: attributes[_RAY_REQUEST_ID]}
        return {}


def _process_ids():
    """Returns the ids of the process. A span outside of tasks gets the task that made
    the actor."""
    context = ray.get_runtime_context()
    name, task = context.get_actor_name() or "", context.get_task_id()
    ids = {REPLICA_ID: name.removeprefix(_REPLICA)} if name.startswith(_REPLICA) else {}
    return ids | {TASK_ID: task} if task else ids


def _request_ids():
    ids = {}
    if task := ray.get_runtime_context().get_task_id():
        ids[TASK_ID] = task
    request = serve_context._serve_request_context.get()
    if request and request.request_id:
        ids[REQUEST_ID] = request.request_id
    return ids
