"""A plan in words: what is drawn, clipped and added, what it costs, and whom it protects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.learning import pricing
from discreet.neighbors import Person

if TYPE_CHECKING:
    from discreet.learning.plan import Plan


def explain(plan: Plan) -> str:
    """One line each for the batches, the clipping and the noise, and then the price and the promise."""
    unit = "person" if isinstance(plan.unit, Person) else "example"
    divided = f"The sum is divided by {plan.sampler.batch_size}"
    lines = [
        f"{plan.steps} steps; {plan.sampler.in_words(unit)}.",
        f"Each {unit}'s gradient is {_clipping(plan)}.",
        f"{plan.noise.in_words()} is added to the sum once per step, even if the batch is empty. {divided}.",
    ]
    if plan.correlation is not None:
        lines.append(f"The noise of a step is {plan.correlation.in_words()}.")
    if isinstance(plan.unit, Person):
        most = plan.unit.max_rows
        how = "clipped as a sum" if plan.sums_persons else f"each clipped to 1/{most} of the norm"
        lines.append(f"A person has at most {most} examples in a batch, {how}.")
    if plan.insecure_seed is not None:
        lines.append("The noise can be reproduced from a seed, so nothing at all is protected.")
    else:
        method = pricing.price(plan.event, plan.delta, plan.relation).method
        lines.append(f"Priced by {method}. {plan.guarantee.explain()}")
    return "\n".join(lines)


def _clipping(plan: Plan) -> str:
    if plan.clip_schedule is None:
        return plan.clipping.in_words(f"{plan.clipping.norm:g}")
    points = ", ".join(f"{norm:g} at step {step}" for step, norm in plan.clip_schedule)
    return f"{plan.clipping.in_words('the scheduled norm')} ({points}, linear in between)"
