// name: ew_several_results_6cd27a6f
// options:
// pack: 4
// space: IterationSpace(groups=(1, 1, 1), spans=(5, 6), index_bits=32)

#include <jax_elementwise/kernel.h>

namespace jax_elementwise {

struct ew_several_results_6cd27a6f_functor {
  JAX_ELEMENTWISE_DEVICE void operator()(const float in0, const int in1, float& out0, bool& out1, int& out2, float& out3) const {
    const float v0 = in0 * 0x1.0000000000000p+1f;
    const float v1 = v0 + 0x1.0000000000000p+0f;
    const bool v2 = in1 > 3;
    const int v3 = divide(in1, 2);
    const int v4 = sign(in1);
    const int v5 = sign(2);
    const bool v6 = v4 != v5;
    const int v7 = remainder(in1, 2);
    const bool v8 = v7 != 0;
    const bool v9 = v6 && v8;
    const int v10 = wrap_sub(v3, 1);
    const int v11 = v9 ? v10 : v3;
    const bool v12 = in0 > 0x0.0p+0f;
    const float v13 = v12 ? in0 : (-0x0.0p+0f);
    out0 = v1;
    out1 = v2;
    out2 = v11;
    out3 = v13;
  }
};

static_assert(pack_size<bool8, float, int>() >= 4, "a pack is one access");

extern "C" __global__ void __launch_bounds__(kBlockSize) ew_several_results_6cd27a6f(
    const __grid_constant__ Geometry<3, 2> geometry,
    float* __restrict__ out0,
    bool8* __restrict__ out1,
    int* __restrict__ out2,
    float* __restrict__ out3,
    const float* __restrict__ in0,
    const int* __restrict__ in1) {
  elementwise<int, 4>(
      ew_several_results_6cd27a6f_functor{}, geometry,
      make_tuple(Output<float>{out0, vectorized(geometry, 0)},
                 Output<bool8>{out1, vectorized(geometry, 1)},
                 Output<int>{out2, vectorized(geometry, 2)},
                 Output<float>{out3, vectorized(geometry, 3)}),
      make_tuple(Rows<float, 0>{in0},
                 Rows<int, 1>{in1}));
}

}  // namespace jax_elementwise
