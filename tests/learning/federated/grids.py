"""A grid in this process: it calls a function for each message, so that strategies are tested without any network."""

from __future__ import annotations

import numpy as np

from discreet.learning.federated._flower import flower


def identify():
    """Set what Flower's runtime sets before a server runs, so that messages can be made."""
    identity = flower("flwr.supercore.task_identity").TaskIdentity
    identity.run_id = identity.task_id = identity.node_id = 1


class FunctionGrid:
    """`client(message)` returns a reply, a list of replies, or None for a client that is absent."""

    def __init__(self, ids, client):
        identify()
        self.ids, self.client, self.asked = list(ids), client, []

    def get_node_ids(self):
        return list(self.ids)

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            self.asked.append(message.metadata.dst_node_id)
            answer = self.client(message)
            replies += [] if answer is None else answer if isinstance(answer, list) else [answer]
        return replies


def record(arrays):
    app = flower("flwr.app")
    return app.ArrayRecord({name: app.Array(np.asarray(array)) for name, array in arrays.items()})


def sent(message):
    """The arrays that a client received."""
    return {name: array.numpy() for name, array in message.content["arrays"].items()}


def reply(message, arrays, examples=1, **metrics):
    app = flower("flwr.app")
    measured = app.MetricRecord({"num-examples": examples, **metrics})
    return app.Message(app.RecordDict({"arrays": record(arrays), "metrics": measured}), reply_to=message)


def failure(message, reason):
    app = flower("flwr.app")
    return app.Message(app.Error(1, reason), reply_to=message)
