"""Local differential privacy: each person randomizes before anything leaves their device.

A protocol is one frozen object that both sides share. The device calls `protocol.client()(value)` and sends the report;
the server calls `protocol.estimate(reports)`. Nobody but the person ever sees the value, so no curator must be trusted;
the price is an error that grows like √n instead of staying constant.
"""

from discreet.mechanisms.local.choosing import ProtocolChoice, best_for
from discreet.mechanisms.local.frequencies import FrequencyEstimate, FrequencyProtocol, Influence
from discreet.mechanisms.local.hadamard import HadamardResponse
from discreet.mechanisms.local.hashing import LocalHashing
from discreet.mechanisms.local.means import Hybrid, MeanEstimate, MeanProtocol, OneBit, Piecewise, best_mean_for
from discreet.mechanisms.local.protocol import Protocol
from discreet.mechanisms.local.rappor import Rappor, RapporClient, RapporEstimate
from discreet.mechanisms.local.reports import Reports
from discreet.mechanisms.local.response import GeneralizedResponse
from discreet.mechanisms.local.sketch import CountMeanSketch, PrefixTree
from discreet.mechanisms.local.subset import SubsetSelection
from discreet.mechanisms.local.unary import UnaryEncoding
from discreet.mechanisms.local.vectors import UnitVectors, VectorEstimate

__all__ = [
    "CountMeanSketch",
    "FrequencyEstimate",
    "FrequencyProtocol",
    "GeneralizedResponse",
    "HadamardResponse",
    "Hybrid",
    "Influence",
    "LocalHashing",
    "MeanEstimate",
    "MeanProtocol",
    "OneBit",
    "Piecewise",
    "PrefixTree",
    "Protocol",
    "ProtocolChoice",
    "Rappor",
    "RapporClient",
    "RapporEstimate",
    "Reports",
    "SubsetSelection",
    "UnaryEncoding",
    "UnitVectors",
    "VectorEstimate",
    "best_for",
    "best_mean_for",
]
