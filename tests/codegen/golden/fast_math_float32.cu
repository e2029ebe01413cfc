// name: ew_silu_f34520b4
// options: --use_fast_math
// pack: 4
// space: IterationSpace(groups=(1,), spans=(1,), index_bits=32)

#include <jax_elementwise/kernel.h>

namespace jax_elementwise {

struct ew_silu_f34520b4_functor {
  JAX_ELEMENTWISE_DEVICE void operator()(const float in0, float& out0) const {
    const float v0 = -in0;
    const float v1 = expf(v0);
    const float v2 = 0x1.0000000000000p+0f + v1;
    const float v3 = in0 / v2;
    out0 = v3;
  }
};

static_assert(pack_size<float>() >= 4, "a pack is one access");

extern "C" __global__ void __launch_bounds__(kBlockSize) ew_silu_f34520b4(
    const __grid_constant__ Geometry<0, 0> geometry,
    float* __restrict__ out0,
    const float* __restrict__ in0) {
  elementwise<int, 4>(
      ew_silu_f34520b4_functor{}, geometry,
      make_tuple(Output<float>{out0, vectorized(geometry, 0)}),
      make_tuple(Contiguous<float>{in0, vectorized(geometry, 1)}));
}

}  // namespace jax_elementwise
