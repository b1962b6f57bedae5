"""grad_check against the specification, clip_grad_norm_ beside PyTorch's, and both ops by opcheck."""

import math
import unittest

import torch
from brigade_adamw import clip_grad_norm_, grad_check
from torch.library import opcheck

from testing import NARROW, SIZES, bits, golden_norm, noise

DTYPES = (torch.float32, *NARROW)


class GradCheckTest(unittest.TestCase):
    """The norm and found_inf."""

    def test_has_the_bits_of_the_specification(self):
        for dtype in DTYPES:
            with self.subTest(dtype):
                tensors = [noise(size, i).to(dtype) for i, size in enumerate(SIZES)]
                total, finite = golden_norm(tensors)
                norm, found_inf = grad_check(tensors).tolist()
                self.assertEqual((norm, found_inf), (math.sqrt(total), 0.0))
                self.assertTrue(finite)

    def test_takes_several_types_in_one_list_and_views(self):
        whole = noise((70000,), 1)
        tensors = [
            whole[1:9000],
            whole[5:8200].to(torch.bfloat16)[3:],
            whole.to(torch.float16)[7:],
            whole[2:3],
            whole.view(700, 100)[:, 1:50],
        ]
        total, _ = golden_norm(tensors)
        self.assertEqual(grad_check(tensors)[0].item(), math.sqrt(total))

    def test_has_the_same_bits_for_any_number_of_threads(self):
        self.addCleanup(torch.set_num_threads, torch.get_num_threads())
        tensors = [noise((300001,), 1), noise((7,), 2), noise((8192 * 3,), 3)]
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(bits(grad_check(tensors)))
        self.assertEqual(len(set(results)), 1)

    def test_finds_what_is_not_finite_wherever_it_is(self):
        for dtype in DTYPES:
            for value in (math.nan, math.inf, -math.inf):
                for place in (0, 31, 8191, 8192, 20000):
                    tensors = [torch.ones(3, dtype=dtype), torch.ones(20001, dtype=dtype)]
                    tensors[1][place] = value
                    self.assertEqual(grad_check(tensors).tolist(), [math.inf, 1.0])
        self.assertEqual(grad_check([torch.tensor([2.0**64])]).tolist(), [math.inf, 1.0])
        largest = torch.full((9000,), 2.0**63)
        self.assertEqual(grad_check([largest]).tolist(), [2.0**63 * math.sqrt(9000), 0.0])

    def test_an_empty_list_and_empty_tensors_have_the_norm_0(self):
        self.assertEqual(grad_check([]).tolist(), [0.0, 0.0])
        self.assertEqual(grad_check([torch.zeros(0), torch.zeros(0, 3)]).tolist(), [0.0, 0.0])

    def test_refuses_other_types_and_layouts(self):
        one = torch.ones(2)
        for tensor, text in [
            (one.double(), r"grads\[1\] is Double"),
            (one.to(torch.complex64), r"grads\[1\] is ComplexFloat"),
            (one.to_sparse(), r"grads\[1\] has the layout Sparse"),
        ]:
            with self.subTest(text), self.assertRaisesRegex(RuntimeError, text):
                grad_check([one, tensor])


class ClipGradNormTest(unittest.TestCase):
    """Beside torch.nn.utils.clip_grad_norm_."""

    def test_clips_as_pytorch_does(self):
        for dtype in DTYPES:
            for max_norm in (0.5, 1e9):
                with self.subTest(f"{dtype} {max_norm}"):
                    lists = []
                    for clip in (clip_grad_norm_, torch.nn.utils.clip_grad_norm_):
                        params = [torch.nn.Parameter(torch.zeros(s, dtype=dtype)) for s in SIZES]
                        for i, param in enumerate(params):
                            param.grad = noise(param.shape, i).to(dtype) if i != 2 else None
                        lists.append((clip(params, max_norm), params))
                    (norm, ours), (peer_norm, theirs) = lists
                    # PyTorch rounds norm and factor to the gradients' type, which has these digits.
                    digits = 4 * torch.finfo(dtype).eps
                    torch.testing.assert_close(norm, peer_norm.float(), rtol=digits, atol=0)
                    self.assertEqual(norm.dtype, torch.float32)
                    for one, other in zip(ours, theirs):
                        if one.grad is not None:
                            torch.testing.assert_close(one.grad, other.grad, rtol=digits, atol=0)

    def test_says_what_is_not_finite_if_asked(self):
        param = torch.nn.Parameter(torch.zeros(2))
        param.grad = torch.tensor([1.0, math.inf])
        with self.assertRaisesRegex(RuntimeError, "norm is not finite"):
            clip_grad_norm_(param, 1.0, error_if_nonfinite=True)
        self.assertEqual(clip_grad_norm_(param, 1.0).item(), math.inf)


class OpCheckTest(unittest.TestCase):
    """Schema, fake tensors, autograd registration and compilation, by PyTorch's own checks."""

    def test_grad_check(self):
        for dtype in DTYPES:
            opcheck(torch.ops.brigade_adamw.grad_check, ([noise((5, 3), 1).to(dtype), torch.zeros(0)],))

    def test_adamw(self):
        for copy_type in (None, *NARROW):
            def tensors(dtype=torch.float32):
                return [noise((5, 3), 1).to(dtype), noise((4,), 2).to(dtype)]

            copies = [] if copy_type is None else tensors(copy_type)
            lists = (tensors(), tensors(), [t.abs() for t in tensors()], [torch.zeros(()) for _ in range(2)], copies)
            options = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1}
            opcheck(torch.ops.brigade_adamw.adamw_, (*lists, tensors(torch.bfloat16)), options)
            more = {
                "max_norm": 0.5,
                "maximize": True,
                "check": torch.tensor([3.0, 0.0], dtype=torch.float64),
                "grad_scale": torch.tensor(2.0),
                "found_inf": torch.tensor(0.0),
            }
            opcheck(torch.ops.brigade_adamw.adamw_, (*lists, tensors()), {**options, **more})


if __name__ == "__main__":
    unittest.main()
