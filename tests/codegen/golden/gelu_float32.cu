// name: ew_gelu_b9139552
// options:
// pack: 4
// space: IterationSpace(groups=(1,), spans=(1,), index_bits=32)

#include <jax_elementwise/kernel.h>

namespace jax_elementwise {

struct ew_gelu_b9139552_functor {
  JAX_ELEMENTWISE_DEVICE void operator()(const float in0, float& out0) const {
    const float v0 = integer_pow<3>(in0);
    const float v1 = 0x1.6e4e260000000p-5f * v0;
    const float v2 = in0 + v1;
    const float v3 = 0x1.9884540000000p-1f * v2;
    const float v4 = tanhf(v3);
    const float v5 = 0x1.0000000000000p+0f + v4;
    const float v6 = 0x1.0000000000000p-1f * v5;
    const float v7 = in0 * v6;
    out0 = v7;
  }
};

static_assert(pack_size<float>() >= 4, "a pack is one access");

extern "C" __global__ void __launch_bounds__(kBlockSize) ew_gelu_b9139552(
    const __grid_constant__ Geometry<0, 0> geometry,
    float* __restrict__ out0,
    const float* __restrict__ in0) {
  elementwise<int, 4>(
      ew_gelu_b9139552_functor{}, geometry,
      make_tuple(Output<float>{out0, vectorized(geometry, 0)}),
      make_tuple(Contiguous<float>{in0, vectorized(geometry, 1)}));
}

}  // namespace jax_elementwise
