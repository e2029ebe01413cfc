// name: ew_smooth_abs_858a4555
// options:
// pack: 8
// space: IterationSpace(groups=(1,), spans=(1,), index_bits=32)

#include <jax_elementwise/kernel.h>

namespace jax_elementwise {

struct ew_smooth_abs_858a4555_functor {
  JAX_ELEMENTWISE_DEVICE void operator()(const float in0, float& out0) const {
    const float v0 = fabsf(in0);
    const bool v1 = v0 < 0x1.0000000000000p+0f;
    const int v2 = convert<int>(v1);
    float v3;
    if (v2 <= 0) {
      const float v4 = fabsf(in0);
      const float v5 = v4 - 0x1.0000000000000p-1f;
      v3 = v5;
    } else {
      const float v6 = in0 * in0;
      const float v7 = divide_for_narrow(v6, 0x1.0000000000000p+1f);
      v3 = v7;
    }
    out0 = v3;
  }
};

static_assert(pack_size<float16>() >= 8, "a pack is one access");

extern "C" __global__ void __launch_bounds__(kBlockSize) ew_smooth_abs_858a4555(
    const __grid_constant__ Geometry<0, 0> geometry,
    float16* __restrict__ out0,
    const float16* __restrict__ in0) {
  elementwise<int, 8>(
      ew_smooth_abs_858a4555_functor{}, geometry,
      make_tuple(Output<float16>{out0, vectorized(geometry, 0)}),
      make_tuple(Contiguous<float16>{in0, vectorized(geometry, 1)}));
}

}  // namespace jax_elementwise
