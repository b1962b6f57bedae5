"""AdamW as a torch.optim.Optimizer over Brigade's kernels."""

import math

import torch

from .ops import grad_check

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_WIDE = ("exp_avg", "exp_avg_sq", "master")


class BrigadeAdamW(torch.optim.Optimizer):
    """torch.optim.AdamW in one pass over memory, with fp32 masters of 16-bit parameters.

    A parameter in bf16 or fp16 has its fp32 master in the optimizer's state ("master"), made of the
    parameter at the first step; the update writes both. Moments are fp32. Gradients are fp32, fp16
    or bf16.

    With max_norm the gradients of all groups are clipped to this norm, by a factor that the update
    applies: the gradients stay as they are. The step reads found_inf and grad_scale as PyTorch's
    fused optimizers do. A step that finds a gradient not finite, in its own check for max_norm or
    by a scaler, changes nothing and does not count. Nothing waits for the device.

    Args:
      params: tensors or groups, all on one device, of fp32, bf16 or fp16.
      lr: a number, or a tensor of one on the CPU.
      eps: greater than 0.
      maximize: climbs instead.
      max_norm: the greatest norm of the unscaled gradients; None for no clipping.
    """

    # For torch.amp.GradScaler: found_inf and grad_scale may stay on the device.
    _step_supports_amp_scaling = True
    # The norm of the unscaled gradients before clipping in the latest step that checked them: a
    # float64 tensor on the device, infinity where they were not finite.
    grad_norm = None
    _checked = None

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=1e-2,
        *,
        maximize=False,
        max_norm=None,
    ):
        if max_norm is not None and not max_norm > 0:
            raise ValueError(f"max_norm is {max_norm}, and must be greater than 0")
        self.max_norm = max_norm
        # With what else torch.optim.AdamW has in a group, so that it can load ours.
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "amsgrad": False,
            "foreach": None,
            "capturable": False,
            "differentiable": False,
            "fused": True,
            "decoupled_weight_decay": True,
        }
        super().__init__(params, defaults)

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)

    def __getstate__(self):
        return {**super().__getstate__(), "max_norm": self.max_norm}

    def add_param_group(self, param_group):
        """Also checks values and types; raises ValueError and adds nothing if they do not fit."""
        super().add_param_group(param_group)
        try:
            _check_group(self.param_groups[-1])
            for param in self.param_groups[-1]["params"]:
                _check_param(param, self.param_groups[0]["params"])
        except ValueError:
            self.param_groups.pop()
            raise

    @torch.no_grad()
    def step(self, closure=None):
        """One step over all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        checked, self._checked = self._checked, None
        if checked is None and self.max_norm is not None:
            checked = self._check()
        grad_scale = getattr(self, "grad_scale", None)
        if checked is not None:
            self.grad_norm = checked[0] if grad_scale is None else checked[0] / grad_scale
        for group in self.param_groups:
            for lists in self._lists_by_type(group):
                torch.ops.brigade_adamw.adamw_(
                    *lists,
                    lr=float(group["lr"]),
                    beta1=group["betas"][0],
                    beta2=group["betas"][1],
                    eps=group["eps"],
                    weight_decay=group["weight_decay"],
                    maximize=group["maximize"],
                    max_norm=self.max_norm,
                    check=checked,
                    grad_scale=grad_scale,
                    found_inf=getattr(self, "found_inf", None),
                )
        return loss

    @torch.no_grad()
    def check_gradients(self):
        """Checks the gradients for the step that follows, which takes the result instead of looking.

        Returns:
          found_inf, an fp32 tensor on the device: 1.0 where a gradient is not finite.
        """
        self._checked = self._check()
        return self._checked[1].to(torch.float32)

    @torch.no_grad()
    def masters(self):
        """The fp32 tensors that the optimizer updates, in the order of the parameters.

        Of an fp32 parameter, itself; of a 16-bit one, its master, which is made here if the first
        step is still to come. Whoever changes the parameters behind the optimizer's back copies the
        new values here as well.
        """
        return [
            p if p.dtype == torch.float32 else self._state_of(p)["master"]
            for group in self.param_groups
            for p in group["params"]
        ]

    def load_state_dict(self, state_dict):
        """Loads a state_dict of this class or of torch.optim.AdamW.

        Moments and masters stay fp32, whatever the parameters' type. A state without a master (of
        AdamW) leaves the masters that are here, or has them made of the parameters.
        """
        loaded = {}

        def before(_, state):
            for group in state["param_groups"]:
                _check_group(group)
            loaded.update(state)

        def after(optimizer):
            optimizer._widen(loaded, masters)

        masters = {p: s["master"] for p, s in self.state.items() if "master" in s}
        # The last to see what is loaded, and the first to see what became of it.
        handles = [
            self.register_load_state_dict_pre_hook(before),
            self.register_load_state_dict_post_hook(after, prepend=True),
        ]
        try:
            super().load_state_dict(state_dict)
        finally:
            for handle in handles:
                handle.remove()

    def _widen(self, loaded, masters):
        """Replaces what torch.optim.Optimizer rounds to the parameter's type."""
        ids = [i for group in loaded["param_groups"] for i in group["params"]]
        params = [p for group in self.param_groups for p in group["params"]]
        for i, param in zip(ids, params):
            saved = loaded["state"].get(i)
            if not saved:
                if param in masters:
                    self.state[param]["master"] = masters[param]
                continue
            state = self.state[param]
            if "exp_avg" in saved:
                step = torch.as_tensor(saved["step"], dtype=torch.float32, device=param.device)
                state["step"] = step.clone()
            for key in _WIDE:
                if key in saved:
                    wide = torch.empty_like(param, dtype=torch.float32, requires_grad=False)
                    state[key] = wide.copy_(saved[key])
            if "master" not in saved and param in masters:
                state["master"] = masters[param]

    def _gradients(self):
        return [p.grad for g in self.param_groups for p in g["params"] if p.grad is not None]

    def _check(self):
        grads = self._gradients()
        if grads:
            return grad_check(grads)
        device = self.param_groups[0]["params"][0].device
        return torch.zeros(2, dtype=torch.float64, device=device)

    def _state_of(self, param):
        """The parameter's state, complete."""
        state = self.state[param]
        if "exp_avg" not in state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=param.device)
            for key in ("exp_avg", "exp_avg_sq"):
                zeros = torch.zeros_like(param, dtype=torch.float32, requires_grad=False)
                state[key] = zeros
        if param.dtype != torch.float32 and "master" not in state:
            state["master"] = param.detach().to(torch.float32)
        return state

    def _lists_by_type(self, group):
        """The op's lists of a group's tensors with gradients, those of the same types together."""
        result = {}
        for param in group["params"]:
            if param.grad is None:
                continue
            state = self._state_of(param)
            narrow = param.dtype != torch.float32
            lists = result.setdefault((param.dtype, param.grad.dtype), ([], [], [], [], [], []))
            params, exp_avgs, exp_avg_sqs, steps, copies, grads = lists
            params.append(state["master"] if narrow else param)
            exp_avgs.append(state["exp_avg"])
            exp_avg_sqs.append(state["exp_avg_sq"])
            steps.append(state["step"])
            if narrow:
                copies.append(param)
            grads.append(param.grad)
        return result.values()


def _check_group(group):
    """Raises ValueError for what the kernels do not do."""
    lr = group["lr"]
    if isinstance(lr, torch.Tensor) and (lr.numel() != 1 or lr.device.type != "cpu"):
        raise ValueError("lr is a tensor and must be one number on the CPU: reading it from a GPU would wait")
    beta1, beta2 = group["betas"]
    for name, value, fits, wanted in [
        ("lr", float(lr), 0 <= float(lr) < math.inf, "at least 0"),
        ("betas[0]", beta1, 0 <= beta1 < 1, "in [0, 1)"),
        ("betas[1]", beta2, 0 <= beta2 < 1, "in [0, 1)"),
        ("eps", group["eps"], 1e-45 <= group["eps"] < math.inf, "greater than 0, also in fp32"),
        ("weight_decay", group["weight_decay"], 0 <= group["weight_decay"] < math.inf, "at least 0"),
        ("amsgrad", group.get("amsgrad"), not group.get("amsgrad"), "False: only AdamW is here"),
        (
            "decoupled_weight_decay",
            group.get("decoupled_weight_decay"),
            group.get("decoupled_weight_decay", True),
            "True: only AdamW is here",
        ),
        ("differentiable", group.get("differentiable"), not group.get("differentiable"), "False"),
    ]:
        if not fits:
            raise ValueError(f"{name} is {value}, and must be {wanted}")


def _check_param(param, others):
    """Raises ValueError for a parameter that the kernels do not take."""
    if param.dtype not in _DTYPES or param.layout != torch.strided:
        raise ValueError(
            f"a parameter is {param.dtype} with the layout {param.layout}, and must be fp32, bf16 or fp16, strided"
        )
    if param.device != others[0].device:
        raise ValueError(
            f"a parameter is on {param.device}, another on {others[0].device}: one optimizer has one device"
        )
