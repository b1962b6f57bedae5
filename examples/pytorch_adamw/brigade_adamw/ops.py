"""The ops, torch.ops.brigade_adamw.*, and what PyTorch wants to know of them."""

import pathlib

import torch

torch.ops.load_library(str(next(pathlib.Path(__file__).parent.glob("_ops*.so"))))


@torch.library.register_fake("brigade_adamw::grad_check")
def _grad_check_fake(grads):
    return torch.empty(2, dtype=torch.float64, device=grads[0].device)


@torch.library.register_fake("brigade_adamw::adamw_")
def _adamw_fake(*_lists, **_options):
    return None


def grad_check(grads):
    """The norm of all these tensors together, and whether one has an element that is not finite.

    One read of each tensor, of fp32, fp16 or bf16, also mixed; nothing waits for the device. The
    sum of squares is in double and in an order of its own: the same bits for any number of threads.

    Returns:
      float64 [2]: the norm, and found_inf: 1.0 where an element is NaN, infinite, or 2^64 or more
      in magnitude (its square is no fp32 number). Then the norm is infinity.
    """
    grads = list(grads)
    if not grads:
        return torch.zeros(2, dtype=torch.float64)
    return torch.ops.brigade_adamw.grad_check(grads)


@torch.no_grad()
def clip_grad_norm_(parameters, max_norm, error_if_nonfinite=False):
    """torch.nn.utils.clip_grad_norm_ with the norm by grad_check. Returns the norm, in fp32.

    BrigadeAdamW(max_norm=...) clips as well, without this function's second pass over the gradients.
    """
    if isinstance(parameters, torch.Tensor):
        parameters = [parameters]
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = grad_check(grads)[0]
    if error_if_nonfinite and not torch.isfinite(norm):
        raise RuntimeError("the gradients' norm is not finite, so they cannot be clipped")
    factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0).to(torch.float32)
    for dtype in {grad.dtype for grad in grads}:
        torch._foreach_mul_([grad for grad in grads if grad.dtype == dtype], factor)
    return norm.to(torch.float32)
