"""The ways to send less whose steps check_compression measures: what a config says, and by the trainer's formulas the bytes
that leave one of two hosts of two ranks in a step."""

import dataclasses

from two_hosts import formulas

ADAM = {"lr": 1e-3}
# Nodes that are known would make rings of what goes to all.
NODES = {"ranks_per_node": 2, "algorithm": "direct"}
# Two of a rank's three others are on the other host, and the exchanges are direct.
TO_OTHER_HOST = 2 / 3
# Steps between two rounds of replicas, and between two meetings of 0/1 Adam.
PERIOD = 4
# Exact steps at the beginning, of what has such.
BEGIN = 2


def to_all(report, _):
    """All of it goes to three others alike."""
    gradients, weights, scalars, *_ = formulas(report)[0]
    return 2 * (gradients + weights + scalars) * TO_OTHER_HOST


def between_groups(report, _):
    """Groups of two share a state: gradients alone leave them, and the statistics."""
    _, _, scalars, _, between = formulas(report)[0]
    return 2 * (between + scalars * TO_OTHER_HOST)


def between_nodes(report, _):
    """Sums of a node's gradients leave it, and weights and statistics to all alike."""
    _, weights, scalars, _, nodes = formulas(report)[0]
    return 2 * (nodes + (weights + scalars) * TO_OTHER_HOST)


def of_meetings(report, _):
    """Meetings send to all alike; the steps between them send statistics."""
    gradients, _, scalars, *_ = formulas(report)[0]
    return 2 * (gradients / PERIOD + scalars) * TO_OTHER_HOST


def of_rounds(report, steps):
    """Of all steps the report says what goes between two replicas of two ranks."""
    return 2 * formulas(report)[1][0] / steps


@dataclasses.dataclass(frozen=True)
class Way:
    name: str
    # The way beside which its speed is stated: its stage, and AdamW with gradients as they are.
    beside: str
    leaves: object = to_all
    optimizer: str = "AdamW"
    params: dict = dataclasses.field(default_factory=dict)
    zero: dict = dataclasses.field(default_factory=dict)
    brigade: dict = dataclasses.field(default_factory=dict)
    # Steps after which a step is like this one again.
    period: int = 1

    @property
    def warm_up(self):
        """Steps that are not measured: the first ones are exact, or differ from those behind them."""
        return BEGIN + 1 if self.period == 1 else 2 * self.period

    def config(self):
        stage = 3 if self.beside == STAGE_3 else 0
        return {
            "train_micro_batch_size_per_gpu": 1,
            "bf16": {"enabled": True},
            "optimizer": {"type": self.optimizer, "params": ADAM | self.params},
            "zero_optimization": {"stage": stage} | self.zero,
            "brigade": self.brigade,
        }


STAGE_0, STAGE_3 = "stage 0", "stage 3"
INT4, INT8 = {"zero_quantized_gradients": True}, {"zero_quantized_weights": True}
FREEZE = {"freeze_step": BEGIN}
MEETINGS = {"var_freeze_step": BEGIN, "local_step_scaler": 1, "local_step_clipper": PERIOD}


def _compression(method, **more):
    return {"gradient_compression": method} | more


def _replicas(lr, momentum):
    return {"replicas": 2, "replica_period": PERIOD, "outer_lr": lr, "outer_momentum": momentum}


WAYS = (
    Way(STAGE_3, STAGE_3),
    Way("qwZ", STAGE_3, zero=INT8),
    Way("qgZ", STAGE_3, zero=INT4),
    Way("qgZ, two hops", STAGE_3, between_nodes, zero=INT4, brigade=NODES),
    Way("qgZ with LoCo", STAGE_3, zero=INT4 | {"zeropp_loco_param": {}}),
    Way("qwZ, qgZ", STAGE_3, zero=INT8 | INT4),
    Way("hpZ", STAGE_3, zero={"zero_hpz_partition_size": 2}),
    Way("HSDP", STAGE_3, between_groups, zero={"mics_shard_size": 2}),
    Way(STAGE_0, STAGE_0),
    Way("1-bit gradients", STAGE_0, brigade=_compression("one_bit")),
    Way("1-bit gradients, two hops", STAGE_0, between_nodes, brigade=_compression("one_bit") | NODES),
    Way("1-bit Adam", STAGE_0, optimizer="OneBitAdam", params=FREEZE),
    Way("1-bit LAMB", STAGE_0, optimizer="OneBitLamb", params=FREEZE),
    Way("0/1 Adam", STAGE_0, of_meetings, optimizer="ZeroOneAdam", params=MEETINGS, period=PERIOD),
    Way("PowerSGD, rank 4", STAGE_0, brigade=_compression("power_sgd", gradient_compression_rank=4)),
    Way("top-k, 1 %", STAGE_0, brigade=_compression("top_k", gradient_compression_density=0.01)),
    Way("local SGD", STAGE_0, of_rounds, brigade=_replicas(1, 0), period=PERIOD),
    Way("DiLoCo", STAGE_0, of_rounds, brigade=_replicas(0.7, 0.9), period=PERIOD),
)
