"""BrigadeAdamW beside torch.optim.AdamW and the usual mixed-precision step, and against the specification."""

import copy
import io
import unittest

import torch
from brigade_adamw import BrigadeAdamW, GradScaler

from testing import NARROW, SIZES, bits, golden_adamw, noise, rounding_bound

STEPS = 12
RULE = {"lr": 1e-2, "betas": (0.9, 0.99), "eps": 1e-6, "weight_decay": 0.1}


def parameters(dtype=torch.float32, seed=1, sizes=SIZES):
    return [torch.nn.Parameter(noise(size, seed + i).to(dtype)) for i, size in enumerate(sizes)]


def set_gradients(params, step, scale=1.0):
    """Gradients of a magnitude between 1/2 and 2, as rounding_bound wants them."""
    for i, param in enumerate(params):
        param.grad = (noise(param.shape, 100 * step + i) * scale).to(param.dtype)


class BesideAdamWTest(unittest.TestCase):
    """fp32 parameters."""

    def compare(self, ours, theirs, steps=STEPS):
        for one, other in zip(ours, theirs):
            bound = rounding_bound(steps, RULE["lr"])
            torch.testing.assert_close(one.detach(), other.detach(), rtol=0, atol=bound)

    def test_steps_as_the_fused_adamw_does(self):
        ours, theirs = parameters(), parameters()
        optimizer, peer = BrigadeAdamW(ours, **RULE), torch.optim.AdamW(theirs, fused=True, **RULE)
        for step in range(STEPS):
            for params, o in ((ours, optimizer), (theirs, peer)):
                set_gradients(params, step)
                o.step()
        self.compare(ours, theirs)
        self.assertFalse(torch.equal(ours[-1], parameters()[-1]))

    def test_maximizes(self):
        ours, theirs = parameters(), parameters()
        optimizer = BrigadeAdamW(ours, maximize=True, **RULE)
        peer = torch.optim.AdamW(theirs, fused=True, maximize=True, **RULE)
        for step in range(STEPS):
            for params, o in ((ours, optimizer), (theirs, peer)):
                set_gradients(params, step)
                o.step()
        self.compare(ours, theirs)

    def test_has_groups_schedules_and_parameters_that_sometimes_lack_a_gradient(self):
        results = []
        for make in (BrigadeAdamW, lambda groups, **rule: torch.optim.AdamW(groups, fused=True, **rule)):
            params = parameters()
            groups = [
                {"params": params[:2], "weight_decay": 0.0},
                {"params": params[2:4], "lr": 3e-3, "betas": (0.8, 0.95)},
                {"params": params[4:]},
            ]
            optimizer = make(groups, **RULE)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
            for step in range(STEPS):
                set_gradients(params, step)
                for i, param in enumerate(params):
                    if (step + i) % 4 == 0:
                        param.grad = None
                optimizer.step()
                schedule.step()
            results.append((params, [int(optimizer.state[p]["step"]) for p in params]))
        (ours, our_steps), (theirs, their_steps) = results
        self.assertEqual(our_steps, their_steps)
        self.assertIn(STEPS * 3 // 4, our_steps)
        self.compare(ours, theirs)

    def test_takes_a_closure_and_a_learning_rate_in_a_tensor(self):
        (param,) = parameters(sizes=[(3, 5)])
        optimizer = BrigadeAdamW([param], lr=torch.tensor(0.5))

        def closure():
            optimizer.zero_grad()
            loss = param.square().sum()
            loss.backward()
            return loss

        first = optimizer.step(closure)
        self.assertLess(optimizer.step(closure).item(), first.item())

    def test_follows_the_memory_order_of_the_parameter(self):
        shape = (4, 3, 5, 7)
        plain = torch.nn.Parameter(noise(shape, 1))
        last = torch.nn.Parameter(noise(shape, 1).to(memory_format=torch.channels_last))
        optimizers = [BrigadeAdamW([p], **RULE) for p in (plain, last)]
        for step in range(3):
            grad = noise(shape, 50 + step)
            # Each has a gradient in the order of the other.
            plain.grad, last.grad = grad.to(memory_format=torch.channels_last), grad.contiguous()
            for optimizer in optimizers:
                optimizer.step()
        self.assertTrue(last.is_contiguous(memory_format=torch.channels_last))
        self.assertTrue(torch.equal(plain, last))

    def test_takes_an_expanded_gradient_and_parameters_that_are_views(self):
        storage = noise((200,), 1)
        before = storage.clone()
        view = torch.nn.Parameter(storage[3:100])
        same = torch.nn.Parameter(storage[3:100].clone())
        for param in (view, same):
            param.grad = torch.tensor(0.5).expand(97)
            BrigadeAdamW([param], **RULE).step()
        self.assertEqual(view.grad.stride(), (0,))
        self.assertTrue(torch.equal(view, same))
        self.assertTrue(torch.equal(storage[:3], before[:3]) and torch.equal(storage[100:], before[100:]))

    def test_tells_autograd_that_parameters_have_changed(self):
        for dtype in (torch.float32, torch.bfloat16):
            param = torch.nn.Parameter(noise((8,), 1).to(dtype))
            loss = param.square().sum()
            param.grad = torch.ones_like(param)
            BrigadeAdamW([param]).step()
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                loss.backward()


class SpecificationTest(unittest.TestCase):
    """The bits of tests/spec."""

    def test_has_its_bits_for_all_types(self):
        for dtype in (torch.float32, *NARROW):
            with self.subTest(dtype):
                params = parameters(dtype)
                start = [p.detach().clone().float() for p in params]
                optimizer = BrigadeAdamW(params, **RULE)
                grads = []
                for step in range(3):
                    set_gradients(params, step)
                    grads.append([p.grad.float() for p in params])
                    optimizer.step()
                for i, (param, master) in enumerate(zip(params, optimizer.masters())):
                    expected = golden_adamw(RULE, start[i], [(1.0, g[i]) for g in grads])
                    state = optimizer.state[param]
                    for name, value in zip(("param", "exp_avg", "exp_avg_sq"), expected):
                        mine = master.detach() if name == "param" else state[name]
                        self.assertEqual(bits(mine), bits(value), (name, tuple(param.shape)))
                    self.assertEqual(bits(param.detach()), bits(master.detach().to(dtype)))

    def test_has_its_bits_where_gradient_and_copy_are_of_any_types(self):
        size, start = 1000, noise((1000,), 1)
        for grad_type in (torch.float32, *NARROW):
            for copy_type in (None, *NARROW):
                with self.subTest(f"{grad_type} {copy_type}"):
                    grad = noise((size,), 2).to(grad_type)
                    param, step = start.clone(), torch.zeros(())
                    m, v = torch.zeros(size), torch.zeros(size)
                    copies = [] if copy_type is None else [torch.zeros(size, dtype=copy_type)]
                    for _ in range(2):
                        torch.ops.brigade_adamw.adamw_(
                            [param], [m], [v], [step], copies, [grad], lr=1e-2, beta1=0.9, beta2=0.99,
                            eps=1e-6, weight_decay=0.1
                        )
                    expected = golden_adamw(RULE, start, [(1.0, grad.float())] * 2)
                    for mine, value in zip((param, m, v), expected):
                        self.assertEqual(bits(mine), bits(value))
                    for narrow in copies:
                        self.assertEqual(bits(narrow), bits(param.to(copy_type)))
                    self.assertEqual(step.item(), 2)

    def test_unscales_and_clips_by_a_factor_that_rounds_once(self):
        params = parameters(torch.bfloat16)
        start = [p.detach().clone().float() for p in params]
        optimizer = BrigadeAdamW(params, max_norm=0.5, **RULE)
        scaler = GradScaler("cpu", init_scale=1024.0)
        scaler.scale(torch.zeros(()))
        grads = []
        for step in range(3):
            # The second is too small to be clipped.
            set_gradients(params, step, scale=1024 * (1.0, 1e-4, 1.0)[step])
            norm = torch.cat([p.grad.double().flatten() for p in params]).norm().item() / 1024
            self.assertEqual(norm < 0.5, step == 1)
            factor = torch.tensor(min(1.0, 0.5 / (norm + 1e-6)) / 1024).float().item()
            grads.append((factor, [p.grad.float() for p in params]))
            scaler.step(optimizer)
            scaler.update()
            self.assertAlmostEqual(optimizer.grad_norm.item() / norm, 1, delta=1e-12)
        for i, master in enumerate(optimizer.masters()):
            expected, _, _ = golden_adamw(RULE, start[i], [(f, g[i]) for f, g in grads])
            self.assertEqual(bits(master), bits(expected))

    def test_has_the_same_bits_for_any_number_of_threads(self):
        self.addCleanup(torch.set_num_threads, torch.get_num_threads())
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            params = parameters(torch.bfloat16, sizes=[(300001,), (7,), (64, 1000)])
            optimizer = BrigadeAdamW(params, max_norm=1.0)
            for step in range(2):
                set_gradients(params, step)
                optimizer.step()
            results.append([bits(m) for m in optimizer.masters()] + [bits(optimizer.grad_norm)])
        self.assertEqual(results[0], results[1])
        self.assertEqual(results[0], results[2])


class MixedPrecisionTest(unittest.TestCase):
    """16-bit parameters beside the usual recipe: GradScaler, clip_grad_norm_, AdamW on masters, copy."""

    def test_steps_as_the_usual_recipe_does(self):
        for dtype in NARROW:
            for own_scaler in (True, False):
                with self.subTest(f"{dtype} {own_scaler}"):
                    self.beside_the_recipe(dtype, own_scaler)

    def beside_the_recipe(self, dtype, own_scaler):
        params = parameters(dtype)
        optimizer = BrigadeAdamW(params, max_norm=1.0, **RULE)
        make = GradScaler if own_scaler else torch.amp.GradScaler
        scaler = make("cpu", init_scale=256.0, growth_interval=2)
        peer_scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=2)
        masters = [torch.nn.Parameter(p.detach().float()) for p in params]
        peer = torch.optim.AdamW(masters, fused=True, **RULE)
        for s in (scaler, peer_scaler):
            s.scale(torch.zeros(()))
        for step in range(STEPS):
            self.assertEqual(scaler.get_scale(), peer_scaler.get_scale())
            set_gradients(params, step, scale=scaler.get_scale())
            if step == 5:
                params[-1].grad.view(-1)[3] = float("inf")
            for param, master in zip(params, masters):
                master.grad = param.grad.float()
            scaler.step(optimizer)
            scaler.update()
            peer_scaler.unscale_(peer)
            torch.nn.utils.clip_grad_norm_(masters, 1.0)
            peer_scaler.step(peer)
            peer_scaler.update()
        bound = rounding_bound(STEPS, RULE["lr"])
        for param, mine, theirs in zip(params, optimizer.masters(), masters):
            torch.testing.assert_close(mine, theirs.detach(), rtol=0, atol=bound)
            self.assertEqual(bits(param.detach()), bits(mine.to(dtype)))
            self.assertEqual(optimizer.state[param]["step"].item(), STEPS - 1)

    def test_a_step_that_is_not_finite_changes_nothing_and_does_not_count(self):
        for value in (float("inf"), float("nan")):
            for make in (GradScaler, torch.amp.GradScaler, None):
                with self.subTest(f"{value} {make}"):
                    params = parameters(torch.bfloat16)
                    optimizer = BrigadeAdamW(params, max_norm=None if make else 1.0)
                    set_gradients(params, 0)
                    optimizer.step()
                    before = copy.deepcopy(optimizer.state_dict()["state"])
                    kept = [bits(p.detach()) for p in params]
                    params[2].grad.view(-1)[0] = value
                    if make:
                        scaler = make("cpu", init_scale=8.0)
                        scaler.scale(torch.zeros(()))
                        scaler.step(optimizer)
                        scaler.update()
                        self.assertEqual(scaler.get_scale(), 4.0)
                    else:
                        optimizer.step()
                        self.assertEqual(optimizer.grad_norm.item(), float("inf"))
                    self.assertEqual(kept, [bits(p.detach()) for p in params])
                    after = optimizer.state_dict()["state"]
                    for i, state in before.items():
                        for key, old in state.items():
                            self.assertEqual(bits(old), bits(after[i][key]))

    def test_a_check_serves_one_step_alone(self):
        (param,) = parameters(sizes=[(4,)])
        optimizer = BrigadeAdamW([param])
        param.grad = torch.full_like(param, float("inf"))
        self.assertEqual(optimizer.check_gradients().item(), 1)
        optimizer.step()
        self.assertEqual(optimizer.state[param]["step"].item(), 0)
        param.grad = torch.ones_like(param)
        optimizer.step()
        self.assertEqual(optimizer.state[param]["step"].item(), 1)

    def test_works_after_unscale(self):
        ours, theirs = parameters(), parameters()
        optimizer, peer = BrigadeAdamW(ours, **RULE), torch.optim.AdamW(theirs, fused=True, **RULE)
        for params, o, make in ((ours, optimizer, GradScaler), (theirs, peer, torch.amp.GradScaler)):
            scaler = make("cpu", init_scale=64.0)
            scaler.scale(torch.zeros(()))
            for step in range(3):
                set_gradients(params, step, scale=64.0)
                scaler.unscale_(o)
                scaler.step(o)
                scaler.update()
        for one, other in zip(ours, theirs):
            bound = rounding_bound(3, RULE["lr"])
            torch.testing.assert_close(one.detach(), other.detach(), rtol=0, atol=bound)

    def test_trains_a_model(self):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)).bfloat16()
        optimizer, scaler = BrigadeAdamW(model.parameters(), lr=1e-2, max_norm=1.0), GradScaler("cpu")
        x = torch.randn(256, 8).bfloat16()
        y = x.square().sum(1, keepdim=True)
        losses = []
        for _ in range(200):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x).float(), y.float())
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        self.assertLess(losses[-1], losses[0] / 10)


class StateTest(unittest.TestCase):
    """state_dict, ours and AdamW's."""

    def train(self, optimizer, params, steps):
        for step in steps:
            set_gradients(params, step)
            optimizer.step()

    def saved(self, optimizer):
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        file.seek(0)
        return torch.load(file, weights_only=True)

    def test_resumes_with_the_same_bits(self):
        for dtype in (torch.float32, *NARROW):
            with self.subTest(dtype):
                params = parameters(dtype)
                optimizer = BrigadeAdamW(params, max_norm=1.0, **RULE)
                self.train(optimizer, params, range(3))
                resumed = [torch.nn.Parameter(p.detach().clone()) for p in params]
                other = BrigadeAdamW(resumed, max_norm=1.0)
                other.load_state_dict(self.saved(optimizer))
                twin = copy.deepcopy(optimizer)
                self.assertEqual(twin.max_norm, 1.0)
                self.train(optimizer, params, range(3, 6))
                self.train(other, resumed, range(3, 6))
                twins = [p for group in twin.param_groups for p in group["params"]]
                self.train(twin, twins, range(3, 6))
                for one, two, three in zip(params, resumed, twins):
                    self.assertEqual(bits(one.detach()), bits(two.detach()))
                    self.assertEqual(bits(one.detach()), bits(three.detach()))

    def test_goes_to_adamw_and_back(self):
        ours, theirs = parameters(), parameters()
        optimizer, peer = BrigadeAdamW(ours, **RULE), torch.optim.AdamW(theirs, fused=True)
        self.train(optimizer, ours, range(3))
        for mine, other in zip(ours, theirs):
            other.data.copy_(mine.data)
        peer.load_state_dict(self.saved(optimizer))
        for mine, other in zip(ours, theirs):
            for key, value in optimizer.state[mine].items():
                self.assertEqual(bits(value), bits(peer.state[other][key]), key)
        self.assertEqual(peer.param_groups[0]["betas"], RULE["betas"])
        # Fused, since our step counts lie beside the parameters.
        self.assertTrue(optimizer.state_dict()["param_groups"][0]["fused"])
        self.assertEqual(set(torch.optim.AdamW(theirs).param_groups[0]), set(optimizer.param_groups[0]))
        self.train(peer, theirs, range(3, 6))

        back = [torch.nn.Parameter(p.detach().clone()) for p in theirs]
        last = BrigadeAdamW(back)
        last.load_state_dict(self.saved(peer))
        self.train(optimizer, ours, range(3, 6))
        bound = rounding_bound(6, RULE["lr"])
        for mine, other in zip(ours, back):
            self.assertEqual(last.state[other]["step"].item(), 6)
            torch.testing.assert_close(mine.detach(), other.detach(), rtol=0, atol=bound)
        self.train(last, back, [6])
        self.train(peer, theirs, [6])
        for other, mine in zip(theirs, back):
            torch.testing.assert_close(mine.detach(), other.detach(), rtol=0, atol=bound)

    def test_masters_travel_to_an_adamw_over_masters_and_back(self):
        params = parameters(torch.bfloat16)
        optimizer = BrigadeAdamW(params, **RULE)
        self.train(optimizer, params, range(3))
        masters = [torch.nn.Parameter(m.clone()) for m in optimizer.masters()]
        peer = torch.optim.AdamW(masters, fused=True)
        peer.load_state_dict(self.saved(optimizer))
        for param, master in zip(params, masters):
            self.assertEqual(bits(optimizer.state[param]["exp_avg"]), bits(peer.state[master]["exp_avg"]))
            self.assertEqual(bits(optimizer.state[param]["master"]), bits(master.detach()))
        self.train(peer, masters, range(3, 6))

        last = BrigadeAdamW([torch.nn.Parameter(m.detach().bfloat16()) for m in masters])
        last.load_state_dict(self.saved(peer))
        # AdamW knows of no masters, and the parameters hold only their upper halves.
        torch._foreach_copy_(last.masters(), [m.detach() for m in masters])
        for mine, (master, state) in zip(last.masters(), peer.state.items()):
            self.assertEqual(bits(mine), bits(master.detach()))
        for mine, state in zip(last.state.values(), peer.state.values()):
            for key in ("step", "exp_avg", "exp_avg_sq"):
                self.assertEqual(bits(mine[key]), bits(state[key]), key)

    def test_a_state_of_16_bit_parameters_loads_into_adamw_over_them(self):
        params = parameters(torch.bfloat16)
        optimizer = BrigadeAdamW(params, **RULE)
        self.train(optimizer, params, range(2))
        peer = torch.optim.AdamW(params, fused=True)
        peer.load_state_dict(self.saved(optimizer))
        set_gradients(params, 2)
        peer.step()
        self.assertEqual(peer.state[params[0]]["exp_avg"].dtype, torch.bfloat16)
        self.assertEqual(peer.state[params[0]]["step"].item(), 3)

    def test_a_state_of_adamw_leaves_the_masters_that_are_here(self):
        params = parameters(torch.bfloat16, sizes=[(5,)])
        optimizer = BrigadeAdamW(params, **RULE)
        self.train(optimizer, params, range(2))
        kept = bits(optimizer.masters()[0])
        narrow = [torch.nn.Parameter(p.detach().float()) for p in params]
        peer = torch.optim.AdamW(narrow, fused=True)
        self.train(peer, narrow, range(4))
        optimizer.load_state_dict(peer.state_dict())
        self.assertEqual(bits(optimizer.masters()[0]), kept)
        self.assertEqual(optimizer.state[params[0]]["step"].item(), 4)
        optimizer.load_state_dict(torch.optim.AdamW(narrow).state_dict())
        self.assertEqual(bits(optimizer.masters()[0]), kept)


class ErrorsTest(unittest.TestCase):
    """What is refused, and in which words."""

    def test_values_out_of_range_are_refused(self):
        for wrong, text in [
            ({"lr": -1.0}, "lr is -1.0, and must be at least 0"),
            ({"betas": (1.0, 0.9)}, r"betas\[0\] is 1.0, and must be in \[0, 1\)"),
            ({"betas": (0.9, -0.1)}, r"betas\[1\] is -0.1"),
            ({"eps": 0.0}, "eps is 0.0, and must be greater than 0"),
            ({"eps": 1e-60}, "eps is 1e-60"),
            ({"weight_decay": float("nan")}, "weight_decay is nan"),
            ({"max_norm": 0.0}, "max_norm is 0.0"),
        ]:
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, text):
                BrigadeAdamW(parameters(), **wrong)

    def test_parameters_that_the_kernels_do_not_take_are_refused(self):
        optimizer = BrigadeAdamW(parameters())
        for dtype in (torch.float64, torch.complex64):
            with self.assertRaisesRegex(ValueError, f"{dtype}.*must be fp32, bf16 or fp16"):
                optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(3, dtype=dtype))]})
        with self.assertRaisesRegex(ValueError, "on meta, another on cpu"):
            optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(3, device="meta"))]})
        self.assertEqual(len(optimizer.param_groups), 1)

    def test_sparse_gradients_and_parameters_with_gaps_are_refused_before_anything_changes(self):
        table = torch.nn.Embedding(10, 4, sparse=True)
        table(torch.tensor([1, 2])).sum().backward()
        with self.assertRaisesRegex(RuntimeError, "layout Sparse; only strided"):
            BrigadeAdamW(table.parameters()).step()
        with self.assertRaisesRegex(RuntimeError, "layout Sparse; only strided"):
            BrigadeAdamW(table.parameters(), max_norm=1.0).step()
        whole, gaps = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(4, 6)[:, ::2])
        for param in (whole, gaps):
            param.grad = torch.ones_like(param)
        with self.assertRaisesRegex(RuntimeError, r"params\[1\] with sizes \[4, 3\].*make it contiguous"):
            BrigadeAdamW([whole, gaps]).step()
        self.assertTrue(torch.equal(whole.detach(), torch.ones(3)))

    def test_states_of_other_algorithms_are_refused(self):
        params = parameters()
        for peer, text in [
            (torch.optim.AdamW(params, amsgrad=True), "amsgrad is True"),
            (torch.optim.Adam(params), "decoupled_weight_decay is False|eps"),
        ]:
            with self.assertRaisesRegex(ValueError, text):
                BrigadeAdamW(params).load_state_dict(peer.state_dict())

    def test_max_norm_needs_a_check(self):
        with self.assertRaisesRegex(RuntimeError, "max_norm needs check"):
            tensors = [[torch.zeros(2)] for _ in range(3)]
            torch.ops.brigade_adamw.adamw_(
                *tensors, [torch.zeros(())], [], [torch.zeros(2)], lr=1.0, beta1=0.9, beta2=0.9, eps=1e-8,
                weight_decay=0.0, max_norm=1.0
            )


if __name__ == "__main__":
    unittest.main()
