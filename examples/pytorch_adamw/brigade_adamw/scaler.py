"""Loss scaling without a pass over the gradients for it."""

import torch

from .optimizer import BrigadeAdamW


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler, used like it.

    `step` has to know whether BrigadeAdamW's gradients are finite. PyTorch's own scaler reads and
    writes all of them for that; this one takes it from grad_check, which the optimizer needs for
    clipping anyway. Other optimizers are treated as before.
    """

    def _check_inf_per_device(self, optimizer):
        if not isinstance(optimizer, BrigadeAdamW):
            return super()._check_inf_per_device(optimizer)
        found_inf = optimizer.check_gradients()
        found = {found_inf.device: found_inf}
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = found
        return found
