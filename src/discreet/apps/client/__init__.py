"""The client of a curator's server: the same private tables, with the work done there."""

from discreet.apps.client.connection import Connection, Refused, connect
from discreet.apps.client.jobs import Job
from discreet.apps.client.table import RemoteAnswer, RemoteGroups, RemoteTable

__all__ = ["Connection", "Job", "Refused", "RemoteAnswer", "RemoteGroups", "RemoteTable", "connect"]
