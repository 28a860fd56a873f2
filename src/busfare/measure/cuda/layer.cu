// A layer of a network as far as the bus can tell: every weight is read, and multiplied and added once a
// token.

extern "C" __global__ void layer(const uint4* weights, unsigned long long count, unsigned tokens,
                                 unsigned* sum) {
    unsigned total = 0;
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += step) {
        uint4 w = weights[i];
        for (unsigned t = 0; t < tokens; ++t) {
            w.x = w.x * 1664525u + 1013904223u;
            w.y = w.y * 1664525u + 1013904223u;
            w.z = w.z * 1664525u + 1013904223u;
            w.w = w.w * 1664525u + 1013904223u;
        }
        total += w.x + w.y + w.z + w.w;
    }
    for (int offset = 16; offset; offset /= 2) total += __shfl_down_sync(0xffffffffu, total, offset);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, total);
}
