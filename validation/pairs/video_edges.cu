// Edges in a video: each frame goes to the GPU, is smoothed (5×5) and differentiated (Sobel), and its edges
// come back.
//
//   before       frames in pageable memory, blocking copies
//   pin          frames in pinned memory, blocking copies
//   async        pageable memory, asynchronous copies in one stream, one wait at the end
//   pin-streams  pinned memory, asynchronous copies, three streams, one wait at the end

#include "measured.h"

namespace {

constexpr int kWidth = 1920, kHeight = 1080, kFrames = 12;
constexpr size_t kPixels = size_t{kWidth} * kHeight;

const Program kProgram = {
    "video_edges", "smooth frames and find their edges", {"before", "pin", "async", "pin-streams"}, 16};

__host__ __device__ int clamped(int value, int last) {
    return value < 0 ? 0 : value > last ? last : value;
}

__host__ __device__ float smooth(const uchar4* frame, int x, int y) {
    const float taps[5] = {1, 4, 6, 4, 1};
    float sum = 0;
    for (int dy = -2; dy <= 2; ++dy) {
        for (int dx = -2; dx <= 2; ++dx) {
            const uchar4 pixel =
                frame[size_t(clamped(y + dy, kHeight - 1)) * kWidth + clamped(x + dx, kWidth - 1)];
            sum += taps[dx + 2] * taps[dy + 2] * (0.299f * pixel.x + 0.587f * pixel.y + 0.114f * pixel.z);
        }
    }
    return sum / 256;
}

__host__ __device__ uchar4 edge(const uchar4* frame, int x, int y) {
    float around[3][3];
    for (int dy = -1; dy <= 1; ++dy)
        for (int dx = -1; dx <= 1; ++dx) around[dy + 1][dx + 1] = smooth(frame, x + dx, y + dy);
    const float across =
        around[0][2] + 2 * around[1][2] + around[2][2] - around[0][0] - 2 * around[1][0] - around[2][0];
    const float down =
        around[2][0] + 2 * around[2][1] + around[2][2] - around[0][0] - 2 * around[0][1] - around[0][2];
    const float strength = sqrtf(across * across + down * down);
    const unsigned char value = static_cast<unsigned char>(strength < 255 ? strength : 255);
    return {value, value, value, 255};
}

__global__ void find_edges(const uchar4* frame, uchar4* edges) {
    const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const int y = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
    if (x < kWidth && y < kHeight) edges[size_t(y) * kWidth + x] = edge(frame, x, y);
}

/// A step of 100 grey levels between two columns: Sobel of its smoothing, 100·4·(6 + 4)/16 beside the step,
/// cut at 255 nowhere; nothing where the frame is flat.
double reference_error() {
    std::vector<uchar4> frame(kPixels, uchar4{100, 100, 100, 255});
    for (size_t at = 0; at < kPixels; ++at)
        if (at % kWidth < 960) frame[at] = {0, 0, 0, 255};
    return std::abs(edge(frame.data(), 960, 500).x - 250.0) + std::abs(edge(frame.data(), 300, 300).x - 0.0);
}

}  // namespace

int main(int count, char** words) {
    const Options options = options_of(count, words, kProgram);
    if (options.reference) return report_reference(kProgram, reference_error(), 1.5);
    const bool pinned = options.is("pin") || options.is("pin-streams");
    const bool blocking = options.is("before") || options.is("pin");
    HostBuffer<uchar4> video(kFrames * kPixels, pinned), edges(kFrames * kPixels, pinned);
    for (size_t at = 0; at < video.size(); ++at) {
        const size_t frame = at / kPixels, x = at % kWidth, y = at % kPixels / kWidth;
        const bool inside = ((x + 8 * frame) / 120 + y / 90) % 2;
        const unsigned char shade = static_cast<unsigned char>((inside ? 160 : 60) + (x * 7 + y * 13) % 40);
        video[at] = {shade, static_cast<unsigned char>(shade / 2 + 40), shade, 255};
    }
    const int lanes = options.is("pin-streams") ? 3 : 1;
    std::vector<cudaStream_t> streams(lanes);
    std::vector<uchar4*> in(lanes), out(lanes);
    for (int lane = 0; lane < lanes; ++lane) {
        CHECK(cudaStreamCreateWithFlags(&streams[lane], cudaStreamNonBlocking));
        in[lane] = device_array<uchar4>(kPixels);
        out[lane] = device_array<uchar4>(kPixels);
    }
    const dim3 block(32, 8), grid(kWidth / 32, kHeight / 8);
    const size_t bytes = kPixels * sizeof(uchar4);
    const auto region = [&] {
        for (int frame = 0; frame < options.rounds * kFrames; ++frame) {
            const uchar4* source = video.data() + frame % kFrames * kPixels;
            uchar4* result = edges.data() + frame % kFrames * kPixels;
            const int lane = frame % lanes;
            if (blocking) {
                CHECK(cudaMemcpy(in[0], source, bytes, cudaMemcpyHostToDevice));
                find_edges<<<grid, block>>>(in[0], out[0]);
                CHECK(cudaMemcpy(result, out[0], bytes, cudaMemcpyDeviceToHost));
            } else {
                CHECK(cudaMemcpyAsync(in[lane], source, bytes, cudaMemcpyHostToDevice, streams[lane]));
                find_edges<<<grid, block, 0, streams[lane]>>>(in[lane], out[lane]);
                CHECK(cudaMemcpyAsync(result, out[lane], bytes, cudaMemcpyDeviceToHost, streams[lane]));
            }
        }
        CHECK(cudaGetLastError());
        for (const cudaStream_t stream : streams) CHECK(cudaStreamSynchronize(stream));
    };
    const std::vector<double> seconds = measure(options, region);
    double error = 0;
    Uniform choose(5);
    for (int each = 0; each < 2000; ++each) {
        const size_t frame = each % kFrames;
        const int x = static_cast<int>(choose() * kWidth), y = static_cast<int>(choose() * kHeight);
        const uchar4 known = edge(video.data() + frame * kPixels, x, y);
        error =
            std::max(error, std::abs(double(known.x) - edges[frame * kPixels + size_t(y) * kWidth + x].x));
    }
    return report(kProgram, options, seconds, error, 1.0);  // rounding may go either way
}
