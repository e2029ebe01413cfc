// name: ew_several_results_255c3a90
// options:
// pack: 4
// space: IterationSpace(groups=(1, 1, 1), spans=(5, 6), index_bits=32)

#include <jax_elementwise/kernel.h>

namespace jax_elementwise {

struct ew_several_results_255c3a90_functor {
  JEW_DEVICE void operator()(const float in0, const int in1, float& out0, bool& out1, int& out2, float& out3) const {
    const float v0 = in0 * 0x1.0000000000000p+1f;
    const float v1 = v0 + 0x1.0000000000000p+0f;
    const bool v2 = in1 > 3;
    const int v3 = 2;
    const int v4 = divide(in1, v3);
    const int v5 = sign(in1);
    const int v6 = sign(v3);
    const bool v7 = v5 != v6;
    const int v8 = remainder(in1, v3);
    const bool v9 = v8 != 0;
    const bool v10 = v7 && v9;
    const int v11 = wrap_sub(v4, 1);
    const int v12 = v10 ? v11 : v4;
    const bool v13 = in0 > 0x0.0p+0f;
    const float v14 = (-0x0.0p+0f);
    const float v15 = v13 ? in0 : v14;
    out0 = v1;
    out1 = v2;
    out2 = v12;
    out3 = v15;
  }
};

static_assert(pack_size<bool8, float, int>() == 4, "the launcher assumes this pack size");

extern "C" __global__ void __launch_bounds__(kBlockSize) ew_several_results_255c3a90(
    const __grid_constant__ Geometry<3, 2> geometry,
    float* __restrict__ out0,
    bool8* __restrict__ out1,
    int* __restrict__ out2,
    float* __restrict__ out3,
    const float* __restrict__ in0,
    const int* __restrict__ in1) {
  elementwise<int, 4>(
      ew_several_results_255c3a90_functor{}, geometry,
      make_tuple(Output<float>{out0, vectorized(geometry, 0)},
                 Output<bool8>{out1, vectorized(geometry, 1)},
                 Output<int>{out2, vectorized(geometry, 2)},
                 Output<float>{out3, vectorized(geometry, 3)}),
      make_tuple(Rows<float, 0>{in0},
                 Rows<int, 1>{in1}));
}

}  // namespace jax_elementwise
