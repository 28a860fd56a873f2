// Every kernel of the benchmarks. One signature: inputs, outputs, then the elements that this launch computes
// (`first` to `first + count`) and the elements of one level. The pointers are those of the whole arrays, so
// that the same kernel works on device memory, on mapped memory, on everything and on a chunk.

#define ELEMENT                                                                       \
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; \
    if (i >= count) return;                                                           \
    i += first

#ifndef WORK
#define WORK 1
#endif

// Density of sea water and its pieces: McDougall, Wright, Jackett and Feistel, J. Atmos. Oceanic Technol. 20
// (2003) 730-741; t potential temperature in degrees C, s practical salinity, p pressure in decibars,
// result in kg per cubic metre. The derivatives are those of the fraction over t and over s.
struct Water {
    double density, over_t, over_s;
};

__device__ Water water(double t, double s, double p) {
    const double root = sqrt(s), t2 = t * t;
    const double n2 = -5.45928211e-2 + p * (1.03970529e-7 + p * -1.23869360e-11);
    const double above = 9.99843699e+2 + p * (1.04004591e-2 + p * -3.24041825e-8) +
                         t * (7.35212840e+0 + t * (n2 + t * 3.98476704e-4)) +
                         s * (2.96938239e+0 + p * 5.18761880e-6 + t * -7.23268813e-3 + s * 2.12382341e-3);
    const double d1 = 7.28606739e-3 + p * p * p * -1.27934137e-17;
    const double d3 = 3.68390573e-7 + p * p * -3.03175128e-16;
    const double below = 1.0 + p * 5.30848875e-6 +
                         t * (d1 + t * (-4.60835542e-5 + t * (d3 + t * 1.80809186e-10))) +
                         s * (2.14691708e-3 + t * (-9.27062484e-6 + t2 * -1.78343643e-10) +
                              root * (4.76534122e-6 + t2 * 1.63410736e-9));
    const double above_t = 7.35212840e+0 + t * (2.0 * n2 + t * (3.0 * 3.98476704e-4)) + s * -7.23268813e-3;
    const double above_s = 2.96938239e+0 + p * 5.18761880e-6 + t * -7.23268813e-3 + s * (2.0 * 2.12382341e-3);
    const double below_t =
        d1 + t * (2.0 * -4.60835542e-5 + t * (3.0 * d3 + t * (4.0 * 1.80809186e-10))) +
        s * (-9.27062484e-6 + t2 * (3.0 * -1.78343643e-10) + root * t * (2.0 * 1.63410736e-9));
    const double below_s = 2.14691708e-3 + t * (-9.27062484e-6 + t2 * -1.78343643e-10) +
                           1.5 * root * (4.76534122e-6 + t2 * 1.63410736e-9);
    Water found;
    found.density = above / below;
    found.over_t = (above_t - found.density * below_t) / below;
    found.over_s = (above_s - found.density * below_s) / below;
    return found;
}

// Pressure at a level, decibars: levels of growing thickness down to 5500 m, after 42 of them.
__device__ double pressure(unsigned long long k) {
    return 5.0 + 15.0 * (double)k + 2.85 * (double)(k * k);
}

extern "C" __global__ void state(const double* temperature, const double* salinity, double* density,
                                 double* over_t, double* over_s, unsigned long long first,
                                 unsigned long long count, unsigned long long level) {
    ELEMENT;
    const Water here = water(temperature[i], salinity[i], pressure(i / level));
    density[i] = here.density;
    over_t[i] = here.over_t;
    over_s[i] = here.over_s;
}

// Buoyancy differences at level k: its own water against that of the surface, and against that of level k -
// 1, both brought to level k [W14 section VII].
extern "C" __global__ void buoydiff(const double* temperature, const double* salinity, double* to_surface,
                                    double* to_above, unsigned long long first, unsigned long long count,
                                    unsigned long long level) {
    ELEMENT;
    const unsigned long long k = i / level, top = i - k * level, up = k ? i - level : i;
    const double p = pressure(k), gravity = 9.806;
    const double own = water(temperature[i], salinity[i], p).density;
    to_surface[i] = gravity * (1.0 - water(temperature[top], salinity[top], p).density / own);
    to_above[i] = gravity * (1.0 - water(temperature[up], salinity[up], p).density / own);
}

extern "C" __global__ void scale(const double* in, double* out, unsigned long long first,
                                 unsigned long long count, unsigned long long level) {
    ELEMENT;
    out[i] = 1.5 * in[i];
}

// WORK multiply-adds an element, each waiting for the one before.
extern "C" __global__ void compute(const double* in, double* out, unsigned long long first,
                                   unsigned long long count, unsigned long long level) {
    ELEMENT;
    double x = in[i];
    for (int n = 0; n < WORK; ++n) x = fma(x, 0.999, 0.0005);
    out[i] = x;
}

// Each element read WORK times, past every cache that volatile passes.
extern "C" __global__ void reread(const double* in, double* out, unsigned long long first,
                                  unsigned long long count, unsigned long long level) {
    ELEMENT;
    const volatile double* from = in;
    double sum = 0.0;
    for (int n = 0; n < WORK; ++n) sum += from[i];
    out[i] = sum;
}

extern "C" __global__ void gather(const double* a, const double* b, const double* c, double* out,
                                  unsigned long long first, unsigned long long count,
                                  unsigned long long level) {
    ELEMENT;
    out[i] = a[i] + 2.0 * b[i] + 3.0 * c[i];
}

extern "C" __global__ void spread(const double* in, double* a, double* b, double* c, unsigned long long first,
                                  unsigned long long count, unsigned long long level) {
    ELEMENT;
    const double x = in[i];
    a[i] = x + 1.0;
    b[i] = 2.0 * x;
    c[i] = x * x;
}

// S16's kernel: a vector times a constant, `accesses` times, each of them in memory.
extern "C" __global__ void multiply(int* vector, int constant, unsigned long long count, int accesses) {
    const unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    volatile int* at = vector + i;
    for (int n = 0; n < accesses; ++n) *at = *at * constant;
}
