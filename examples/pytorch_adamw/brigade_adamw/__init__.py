"""AdamW in one pass over memory, and the norm and finiteness of gradients in one more.

BrigadeAdamW     a torch.optim.Optimizer
GradScaler       torch.amp.GradScaler that checks BrigadeAdamW's gradients while it takes their norm
grad_check       norm and finiteness of a list of tensors
clip_grad_norm_  torch.nn.utils.clip_grad_norm_ on it
"""

from .ops import clip_grad_norm_, grad_check
from .optimizer import BrigadeAdamW
from .scaler import GradScaler

__all__ = ["BrigadeAdamW", "GradScaler", "clip_grad_norm_", "grad_check"]
