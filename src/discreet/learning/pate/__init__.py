"""PATE: teachers on disjoint shards of the private data label public inputs by a noisy vote.

- `shards` decides which teacher sees a person, `teachers` trains them and counts their votes;
- `voting` adds the noise, `_answers` charges and answers questions, `price` is what the votes themselves cost,
  which stays secret, and `publishing` releases a bound on it with noise;
- `prediction` releases scores instead of labels; what is done with them afterwards is free;
- `student` trains on the released labels, which costs nothing more; `classifier` makes an estimator of a torch module;
- `plotting` draws the answers, and the votes for the data's owner.
"""

from discreet.learning.pate._answers import Answers, Ensemble, voting_event
from discreet.learning.pate.classifier import Classifier
from discreet.learning.pate.plotting import plot_answers, plot_votes
from discreet.learning.pate.prediction import Predictions, PrivatePredictor
from discreet.learning.pate.price import DataDependentPrice, data_dependent
from discreet.learning.pate.publishing import PublishedPrice, publish_price
from discreet.learning.pate.shards import shards_of
from discreet.learning.pate.student import train_student
from discreet.learning.pate.teachers import Teachers, train_teachers
from discreet.learning.pate.voting import ConfidentVoting, GaussianVoting, LaplaceVoting, Voting

__all__ = [
    "Answers",
    "Classifier",
    "ConfidentVoting",
    "DataDependentPrice",
    "Ensemble",
    "GaussianVoting",
    "LaplaceVoting",
    "Predictions",
    "PrivatePredictor",
    "PublishedPrice",
    "Teachers",
    "Voting",
    "data_dependent",
    "plot_answers",
    "plot_votes",
    "publish_price",
    "shards_of",
    "train_student",
    "train_teachers",
    "voting_event",
]
