"""Private training: charge a plan, then draw, clip, add noise and step in a loop. Only this package imports torch.

- `plan` fixes a training in advance, `pricing` prices it, `explanation` puts it into words;
- `_train` is the one-call interface, `loop` runs the steps, `run` is the result, `checkpoint` the file to resume from;
- `gradients` leaves the loop to others and `integrations` connects frameworks; `allowance` keeps both in the ledger;
- `step` takes one private step, from `data` (records, samplers, batches), `clipping`, `engine` and `noise`;
- `private_evaluation` measures a model on private rows, with `rates` and their intervals;
- `lipschitz` holds networks whose gradients are bounded by construction;
- `compatibility` checks and repairs models, `zoo` holds small ones, `losses` makes any loss per-example.
"""

from discreet.learning import _extra as _extra  # first, for its message about what to install
from discreet.learning._train import train
from discreet.learning.clipping import Adaptive, Automatic, Clipping, Flat, PerLayer
from discreet.learning.compatibility import check, fix
from discreet.learning.data.padding import PadTo
from discreet.learning.data.patterns import CyclicGroups, OrderedEpochs
from discreet.learning.data.sampling import (
    AllocatedEpochs,
    FixedSizeSampler,
    PoissonSampler,
    ShuffledEpochs,
    TruncatedPoissonSampler,
)
from discreet.learning.engine import ClippedSum, Engine, clipped_sum
from discreet.learning.gradients import PrivateGradients
from discreet.learning.lipschitz import LipschitzNetwork
from discreet.learning.noise import GaussianNoise, L2LaplaceNoise, LaplaceNoise, NoiseCorrelation
from discreet.learning.noise.correlation import (
    BandedCorrelation,
    BufferedCorrelation,
    CancelingCorrelation,
    SquareRootCorrelation,
    TreeCorrelation,
)
from discreet.learning.plan import Plan
from discreet.learning.private_evaluation import PrivateEvaluation, evaluate_privately
from discreet.learning.run import History, Run
from discreet.learning.step import Step

__all__ = [
    "Adaptive",
    "AllocatedEpochs",
    "Automatic",
    "BandedCorrelation",
    "BufferedCorrelation",
    "CancelingCorrelation",
    "ClippedSum",
    "Clipping",
    "CyclicGroups",
    "Engine",
    "FixedSizeSampler",
    "Flat",
    "GaussianNoise",
    "History",
    "L2LaplaceNoise",
    "LaplaceNoise",
    "LipschitzNetwork",
    "NoiseCorrelation",
    "OrderedEpochs",
    "PadTo",
    "PerLayer",
    "Plan",
    "PoissonSampler",
    "PrivateEvaluation",
    "PrivateGradients",
    "Run",
    "ShuffledEpochs",
    "SquareRootCorrelation",
    "Step",
    "TreeCorrelation",
    "TruncatedPoissonSampler",
    "check",
    "clipped_sum",
    "evaluate_privately",
    "fix",
    "train",
]
