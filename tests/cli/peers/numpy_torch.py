"""What scripts/peer_libraries.py uses of torch, on numpy and in fp32: layouts and indices can be tested without a GPU."""
import types

import numpy


class Tensor(numpy.ndarray):
    def t(self):
        return self.T

    def transpose(self, one, other):
        return numpy.swapaxes(self, one, other)

    def permute(self, *axes):
        return numpy.ndarray.transpose(self, axes)

    def float(self):
        return self.astype(numpy.float32)

    def contiguous(self):
        return numpy.ascontiguousarray(self).view(Tensor)

    def square(self):
        return self * self

    def mean(self):
        return numpy.asarray(numpy.mean(numpy.asarray(self))).view(Tensor)

    def abs(self):
        return numpy.abs(self)

    def amax(self, axis, keepdim=False):
        return self.max(axis, keepdims=keepdim)

    def clamp(self, min=None, max=None):
        return self.clip(min, max)

    def sqrt(self):
        return numpy.asarray(numpy.sqrt(numpy.asarray(self))).view(Tensor)

    def fill_(self, value):
        self[...] = value
        return self

    def zero_(self):
        return self.fill_(0)

    def mul_(self, factors):
        self *= factors
        return self

    def to(self, dtype):
        return self.astype(dtype)

    def index_copy_(self, axis, index, source):
        assert axis == 0
        self[index] = source
        return self


class Generator:
    def __init__(self, device=None):
        pass

    def manual_seed(self, seed):
        self.random = numpy.random.default_rng(seed)
        return self


def made(array, dtype=None):
    return numpy.array(array, dtype=dtype).view(Tensor)


def grouped_mm(left, right, offs):
    """As torch._grouped_mm: ragged rows of left, or, where both have two dimensions, a ragged inner dimension."""
    begins = [0, *offs[:-1]]
    if right.ndim == 3:
        return made(numpy.concatenate([left[a:b] @ right[e] for e, (a, b) in enumerate(zip(begins, offs))]))
    return made([left[:, a:b] @ right[a:b] for a, b in zip(begins, offs)])


def scaled_grouped_mm(left, right, of_left, of_right, offs, out_dtype, use_fast_accum):
    assert of_left.shape == left.shape[:1] and of_right.shape == (right.shape[0], right.shape[2])
    return grouped_mm(left * of_left[:, None], right * of_right[:, None, :], offs)


def numpy_torch():
    """A module of its own for each test."""
    torch = types.SimpleNamespace(bfloat16=numpy.float32, float16=numpy.float32, float32=numpy.float32,
                                  float8_e4m3fn=numpy.float32, int32=numpy.int32, int64=numpy.int64, uint8=numpy.uint8,
                                  Generator=Generator, _grouped_mm=grouped_mm, _scaled_grouped_mm=scaled_grouped_mm)
    torch.cuda = types.SimpleNamespace(
        get_device_properties=lambda device: types.SimpleNamespace(L2_cache_size=1 << 10),
        synchronize=lambda: None, current_stream=lambda: types.SimpleNamespace(cuda_stream=7))
    torch.tensor = lambda values, dtype, device: made(values, dtype)
    torch.zeros = lambda shape, dtype, device: made(numpy.zeros(shape), dtype)
    torch.empty = lambda shape, dtype, device: made(numpy.full(shape, numpy.nan), dtype)
    torch.empty_like = lambda like: made(numpy.full(like.shape, numpy.nan))
    torch.rand = lambda count, device, generator: made(generator.random.random(count), torch.float32)
    torch.randn = lambda shape, dtype, device, generator: made(generator.random.standard_normal(shape), dtype)
    torch.randperm = lambda count, generator: generator.random.permutation(count)
    torch.mm = lambda left, right, out: numpy.matmul(left, right, out=out)
    torch.index_select = lambda source, axis, index, out: numpy.take(source, index, axis=axis, out=out)
    return torch
