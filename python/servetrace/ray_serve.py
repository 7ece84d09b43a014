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
_MOST_STARTED = 1 << 16  # spans that started and have not ended
_RAY_REQUEST_ID = "request_id"  # Ray Serve's own attribute


class RayProcessor(RelayProcessor):
    """A RelayProcessor that adds Ray's ids. Made in the actor whose spans it gets.

    ``on_start`` reads the ids, because a span may end in another task. The exported span
    has them; the span of the application and the exporters of others have not, and
    setting attributes would cost more than the export.
    """

    def __init__(self, relay, log=None, **options):
        self._context, self._ids = None, {}
        self._started = {}  # span id: task id, request id
        try:
            self._context = ray.get_runtime_context()
            self._ids = self._process_ids()
        except Exception as e:
            log and log.warning("servetrace: spans without Ray's ids: %r", e)
        super().__init__(relay, log, **options)

    def on_start(self, span, parent_context=None):
        try:
            request = serve_context._serve_request_context.get()
            started = self._started
            started[span.get_span_context().span_id] = (self._context.get_task_id(), request.request_id if request else "")
            if len(started) > _MOST_STARTED:
                del started[next(iter(started))]
        except Exception:
            pass  # an exception here would fail the request

    def on_end(self, span):
        try:
            ids = self._ids_of(span)
        except Exception:
            ids = None
        self.put(span, ids)

    def _process_ids(self):
        """Returns the ids of the process. A span outside of tasks gets the task that made
        the actor."""
        name, task = self._context.get_actor_name() or "", self._context.get_task_id()
        ids = {REPLICA_ID: name.removeprefix(_REPLICA)} if name.startswith(_REPLICA) else {}
        return ids | {TASK_ID: task} if task else ids

    def _ids_of(self, span):
        ids = self._ids.copy()
        task, request = self._started.pop(span.context.span_id, (None, ""))
        if task:
            ids[TASK_ID] = task
        # Ray Serve starts the span of a replica before it sets the context of the request.
        if request := request or span.attributes.get(_RAY_REQUEST_ID):
            ids[REQUEST_ID] = request
        return ids
