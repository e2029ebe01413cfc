// name: ew_bias_add_3736b690
// options:
// pack: 8
// space: IterationSpace(groups=(1, 1), spans=(3, 2), index_bits=32)

#include <jax_elementwise/kernel.h>

namespace jax_elementwise {

struct ew_bias_add_3736b690_functor {
  JAX_ELEMENTWISE_DEVICE void operator()(const float in0, const float in1, float& out0) const {
    const float v0 = in0 + in1;
    out0 = v0;
  }
};

static_assert(pack_size<bfloat16>() >= 8, "a pack is one access");

extern "C" __global__ void __launch_bounds__(kBlockSize) ew_bias_add_3736b690(
    const __grid_constant__ Geometry<2, 1> geometry,
    bfloat16* __restrict__ out0,
    const bfloat16* __restrict__ in0,
    const bfloat16* __restrict__ in1) {
  elementwise<int, 8>(
      ew_bias_add_3736b690_functor{}, geometry,
      make_tuple(Output<bfloat16>{out0, vectorized(geometry, 0)}),
      make_tuple(Contiguous<bfloat16>{in0, vectorized(geometry, 1)},
                 Rows<bfloat16, 0>{in1}));
}

}  // namespace jax_elementwise
