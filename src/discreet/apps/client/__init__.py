"""The client of a curator's server: the same private tables, with the work done there."""

from discreet.apps.client.connection import Connection, RequestRefused, connect
from discreet.apps.client.jobs import Job
from discreet.apps.client.table import RemoteAnswer, RemoteGroups, RemoteTable

__all__ = ["Connection", "Job", "RemoteAnswer", "RemoteGroups", "RemoteTable", "RequestRefused", "connect"]
