// quick.cuh's formulas in the host's arithmetic, over the whole range of float: how far off, and what infinities, NaN and
// the tails give. What the hardware's approximations add, tests/python/test_gpu_quick.py sees.
#include "mathfuse/device/elementwise.cuh"
#include "expect.h"

struct quick_function {
    const char *name;
    float (*quick)(float);
    float (*full)(float);
    double (*exact)(double);
};

static double sigmoid_of(double x)
{
    return 1 / (1 + exp(-x));
}
static double silu_of(double x)
{
    return x / (1 + exp(-x));
}
static double gelu_of(double x)
{
    return x / (1 + exp(-2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

static const quick_function functions[] = {{"exp", mf::quick::exp, mf::exp<float>, exp},
                                           {"exp2", mf::quick::exp2, mf::exp2<float>, exp2},
                                           {"sigmoid", mf::quick::sigmoid, mf::sigmoid<float>, sigmoid_of},
                                           {"silu", mf::quick::silu, mf::silu<float>, silu_of},
                                           {"gelu", mf::quick::gelu, mf::gelu<float>, gelu_of},
                                           {"tanh", mf::quick::tanh, mf::tanh<float>, tanh},
                                           {"reciprocal", mf::quick::reciprocal, mf::reciprocal<float>, nullptr},
                                           {"sqrt", mf::quick::sqrt, mf::sqrt<float>, sqrt}};

// Finite floats, every 4099th: the error is below 2^-16 of the value, or of the smallest normal number.
static void test_errors(const quick_function &f)
{
    double worst = 0;
    for (unsigned long long bits = 0; bits < 1ull << 32; bits += 4099) {
        unsigned int word = (unsigned int)bits;
        float x;
        memcpy(&x, &word, sizeof x);
        double want = f.exact ? f.exact(x) : 1.0 / x;
        if (!(fabsf(x) <= 3e38f) || !(fabs(want) < 3.4e38))
            continue;
        double error = fabs(f.quick(x) - want) / fmax(fabs(want), 0x1p-126);
        worst = error <= worst ? worst : error;
    }
    EXPECT(worst < 0x1p-16, "%s: an error of 2^%.1f", f.name, log2(worst));
}

static bool alike(float x, float y)
{
    return (x != x && y != y) || (x == y && signbit(x) == signbit(y));
}

static void test_specials(const quick_function &f)
{
    const float inf = mf::inf_of<float>(),
                specials[] = {inf, -inf, mf::nan_of<float>(), 0.0f, -0.0f, 1e38f, -1e38f, 200, -200};
    for (float x : specials)
        EXPECT(alike(f.quick(x), f.full(x)), "%s(%g): %g, should be %g", f.name, x, f.quick(x), f.full(x));
}

int main()
{
    for (const quick_function &f : functions) {
        test_errors(f);
        test_specials(f);
    }
    return finish("quick");
}
