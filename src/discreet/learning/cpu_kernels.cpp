// Kernels for a CPU in float32: all steps of an LSTM, forward and backward, Gram matrices, and normal noise.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif
// As many floats as a register holds, at any address.
typedef float Vector __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

inline Vector load(const float* from) { return *reinterpret_cast<const Vector*>(from); }
inline void store(float* to, Vector value) { *reinterpret_cast<Vector*>(to) = value; }
inline Vector all(float value) { return Vector{} + value; }
inline Vector clamp(Vector x, float limit) {
  x = x > limit ? all(limit) : x;
  return x < -limit ? all(-limit) : x;
}

// x·p(x²)/q(x²), fitted to tanh on [0, 9.01] with a relative error of 2.1e-8; float32 arithmetic adds 4e-7. Beyond, tanh is
// 1 in float32, and the fit rises to 1 + 5.9e-7 at 9.6. So larger inputs give exactly 1, and a closed gate exactly 0.
inline Vector tanh_of(Vector x) {
  x = clamp(x, 9.6f);
  const Vector y = x * x;
  Vector p = all(1.3335600666660209e-8f);
  p = p * y + 2.0595376719499517e-5f;
  p = p * y + 3.4947574857543354e-3f;
  p = p * y + 1.3380327136819903e-1f;
  p = p * y + 9.999999794127176e-1f;
  Vector q = all(7.768772116946176e-7f);
  q = q * y + 3.2842747677315243e-4f;
  q = q * y + 2.587382475807429e-2f;
  q = q * y + 4.6713642620809953e-1f;
  q = q * y + 1.0f;
  return clamp(x * p / q, 1.0f);
}

inline Vector sigmoid_of(Vector x) { return 0.5f * tanh_of(0.5f * x) + 0.5f; }

// target += left · right for ROWS rows and COLUMNS registers of columns, whose sums stay in registers.
template <int ROWS, int COLUMNS>
inline void add_tile(const float* left, int64_t left_row, const float* right, int64_t right_row, float* target,
                     int64_t target_row, int64_t depth) {
  Vector sums[ROWS][COLUMNS];
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < COLUMNS; c++) sums[r][c] = load(target + r * target_row + c * LANES);
  for (int64_t k = 0; k < depth; k++) {
    Vector factors[COLUMNS];
    for (int c = 0; c < COLUMNS; c++) factors[c] = load(right + k * right_row + c * LANES);
    for (int r = 0; r < ROWS; r++) {
      const Vector factor = all(left[r * left_row + k]);
      for (int c = 0; c < COLUMNS; c++) sums[r][c] += factor * factors[c];
    }
  }
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < COLUMNS; c++) store(target + r * target_row + c * LANES, sums[r][c]);
}

template <int ROWS, int COLUMNS>
void add_columns(const float* left, int64_t left_row, const float* right, int64_t right_row, float* target,
                 int64_t target_row, int64_t rows, int64_t depth) {
  int64_t r = 0;
  for (; r + ROWS <= rows; r += ROWS)
    add_tile<ROWS, COLUMNS>(left + r * left_row, left_row, right, right_row, target + r * target_row, target_row, depth);
  for (; r + 2 <= rows; r += 2)
    add_tile<2, COLUMNS>(left + r * left_row, left_row, right, right_row, target + r * target_row, target_row, depth);
  for (; r < rows; r++)
    add_tile<1, COLUMNS>(left + r * left_row, left_row, right, right_row, target + r * target_row, target_row, depth);
}

// target [rows, columns] += left [rows, depth] · right [depth, columns]; columns is a multiple of LANES.
void add_product(const float* left, int64_t left_row, const float* right, int64_t right_row, float* target,
                 int64_t target_row, int64_t rows, int64_t columns, int64_t depth) {
#if defined(__AVX512F__)
  constexpr int ROWS = 6, WIDE = 4;  // 24 of 32 registers hold sums
#else
  constexpr int ROWS = 4, WIDE = 3;  // 12 of 16
#endif
  int64_t c = 0;
  for (; c + WIDE * LANES <= columns; c += WIDE * LANES)
    add_columns<ROWS, WIDE>(left, left_row, right + c, right_row, target + c, target_row, rows, depth);
  for (; c < columns; c += LANES)
    add_columns<ROWS, 1>(left, left_row, right + c, right_row, target + c, target_row, rows, depth);
}

// Sizes of an LSTM: T steps, B examples, H numbers in a state, a multiple of `lanes()`.
//
// Examples do not depend on each other, so each thread takes some of them through all steps without waiting for other
// threads. Its part of the state stays in its core's cache, and the functions of the gates are computed right after the
// product that they depend on.

// Runs `work(first, rows)` for the examples of each thread.
template <typename Work>
void for_examples(int64_t examples, int64_t threads, const Work& work) {
  const int64_t share = (examples + threads - 1) / threads;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int64_t part = 0; part < threads; part++) {
    const int64_t first = part * share, rows = std::min(share, examples - first);
    if (rows > 0) work(first, rows);
  }
}

typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));
typedef int Places __attribute__((vector_size(16)));
#if defined(__clang__)
#define SHUFFLED(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define SHUFFLED(a, b, i, j, k, l) __builtin_shuffle(a, b, Places{i, j, k, l})
#endif

// The sums over the lanes of four vectors.
inline Four totals_of(const Vector* values) {
  Four parts[4];
  for (int v = 0; v < 4; v++) {
    parts[v] = *reinterpret_cast<const Four*>(&values[v]);
    for (int part = 1; part < LANES / 4; part++) parts[v] += reinterpret_cast<const Four*>(&values[v])[part];
  }
  const Four low = SHUFFLED(parts[0], parts[1], 0, 4, 1, 5) + SHUFFLED(parts[0], parts[1], 2, 6, 3, 7);
  const Four high = SHUFFLED(parts[2], parts[3], 0, 4, 1, 5) + SHUFFLED(parts[2], parts[3], 2, 6, 3, 7);
  return SHUFFLED(low, high, 0, 1, 4, 5) + SHUFFLED(low, high, 2, 3, 6, 7);
}

// The dot products of four rows with four others over `steps` vectors. At most 16 terms are added up in a row, and longer
// sums in pairs.
void add_dots(const float* left, const float* right, int64_t row, int64_t steps, Vector (&totals)[4][4]) {
  if (steps > 16) {
    const int64_t half = (steps / 2 + 15) / 16 * 16;
    Vector others[4][4];
    add_dots(left, right, row, half, totals);
    add_dots(left + half * LANES, right + half * LANES, row, steps - half, others);
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 4; j++) totals[i][j] += others[i][j];
    return;
  }
  Vector sums[4][4] = {};  // in registers
  for (int64_t k = 0; k < steps * LANES; k += LANES) {
    Vector factors[4];
    for (int j = 0; j < 4; j++) factors[j] = load(right + j * row + k);
    for (int i = 0; i < 4; i++) {
      const Vector factor = load(left + i * row + k);
      for (int j = 0; j < 4; j++) sums[i][j] += factor * factors[j];
    }
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) totals[i][j] = sums[i][j];
}

inline void dot_tile(const float* left, const float* right, int64_t row, int64_t width, float (&dots)[4][4]) {
  Vector sums[4][4];
  int64_t k = width / LANES * LANES;
  add_dots(left, right, row, width / LANES, sums);
  for (int i = 0; i < 4; i++) {
    const Four totals = totals_of(sums[i]);
    for (int j = 0; j < 4; j++) dots[i][j] = totals[j];
  }
  if (k == width) return;
  float rest[4][4] = {};
  for (; k < width; k++)
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 4; j++) rest[i][j] += left[i * row + k] * right[j * row + k];
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) dots[i][j] += rest[i][j];
}

}  // namespace

extern "C" int64_t lanes() { return LANES; }

// gates: W x + b, [T, B, 4H]; transposed: Uᵀ, [H, 4H]; kept: i, f, g, o and tanh(c') for the backward pass, [T, 5, B, H].
extern "C" void lstm_forward(const float* gates, const float* hidden, const float* cell, const float* transposed,
                             float* outputs, float* cells, float* kept, int64_t T, int64_t B, int64_t H, int64_t reverse,
                             int64_t threads) {
  for_examples(B, threads, [=](int64_t first, int64_t rows) {
    std::vector<float> products(rows * 4 * H);
    const float *h = hidden + first * H, *c = cell + first * H;
    for (int64_t step = 0; step < T; step++) {
      const int64_t t = reverse ? T - 1 - step : step, start = (t * B + first) * H;
      std::copy_n(gates + 4 * start, rows * 4 * H, products.data());
      add_product(h, H, transposed, 4 * H, products.data(), 4 * H, rows, 4 * H, H);
      float *next_h = outputs + start, *next_c = cells + start, *keep = kept + (t * 5 * B + first) * H;
      const int64_t plane = B * H;
      for (int64_t r = 0; r < rows; r++) {
        for (int64_t j = 0; j < H; j += LANES) {
          const float* product = products.data() + r * 4 * H + j;
          const int64_t at = r * H + j;
          const Vector i = sigmoid_of(load(product)), f = sigmoid_of(load(product + H));
          const Vector g = tanh_of(load(product + 2 * H)), o = sigmoid_of(load(product + 3 * H));
          const Vector new_c = f * load(c + at) + i * g, tanh_c = tanh_of(new_c);
          store(keep + at, i);
          store(keep + plane + at, f);
          store(keep + 2 * plane + at, g);
          store(keep + 3 * plane + at, o);
          store(keep + 4 * plane + at, tanh_c);
          store(next_c + at, new_c);
          store(next_h + at, o * tanh_c);
        }
      }
      h = next_h;
      c = next_c;
    }
  });
}

// grad: that of the outputs, [T, B, H], with strides of steps and examples; u: [4H, H]; grads: those of the gates,
// [T, B, 4H]; of_cell: that of the last cell, which becomes that of the initial one, [B, H].
extern "C" void lstm_backward(const float* grad, const float* cell, const float* u, const float* cells,
                              const float* kept, float* grads, float* of_cell, int64_t T, int64_t B, int64_t H,
                              int64_t reverse, int64_t threads, int64_t grad_step, int64_t grad_example) {
  for_examples(B, threads, [=](int64_t first, int64_t rows) {
    std::vector<float> of_hidden(rows * H);
    const float* later = nullptr;
    float* of_c = of_cell + first * H;
    for (int64_t step = 0; step < T; step++) {
      const int64_t t = reverse ? step : T - 1 - step, start = (t * B + first) * H, plane = B * H;
      for (int64_t r = 0; r < rows; r++)
        std::copy_n(grad + t * grad_step + (first + r) * grad_example, H, of_hidden.data() + r * H);
      if (later != nullptr) add_product(later, 4 * H, u, H, of_hidden.data(), H, rows, H, 4 * H);
      const float *keep = kept + (t * 5 * B + first) * H, *before = cell + first * H;
      if (step + 1 < T) before = cells + ((reverse ? t + 1 : t - 1) * B + first) * H;
      for (int64_t r = 0; r < rows; r++) {
        for (int64_t j = 0; j < H; j += LANES) {
          const int64_t at = r * H + j;
          const Vector i = load(keep + at), f = load(keep + plane + at), g = load(keep + 2 * plane + at);
          const Vector o = load(keep + 3 * plane + at), tanh_c = load(keep + 4 * plane + at);
          const Vector of_h = load(of_hidden.data() + at);
          const Vector of_new_c = load(of_c + at) + of_h * o * (1.0f - tanh_c * tanh_c);
          float* of_gates = grads + 4 * start + r * 4 * H + j;
          store(of_gates, of_new_c * g * i * (1.0f - i));
          store(of_gates + H, of_new_c * load(before + at) * f * (1.0f - f));
          store(of_gates + 2 * H, of_new_c * i * (1.0f - g * g));
          store(of_gates + 3 * H, of_h * tanh_c * o * (1.0f - o));
          store(of_c + at, of_new_c * f);
        }
      }
      later = grads + 4 * start;
    }
  });
}

// ⟨a_t, a_s⟩ for all pairs of the T rows of each of B examples, [B, T, T]; T is a multiple of four, and a row has `width`
// numbers next to each other.
extern "C" void grams(const float* values, float* out, int64_t B, int64_t T, int64_t width, int64_t example, int64_t row,
                      int64_t threads) {
  const int64_t blocks = T / 4;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 4)
  for (int64_t task = 0; task < B * blocks; task++) {
    const float* a = values + task / blocks * example;
    float *gram = out + task / blocks * T * T, dots[4][4];
    for (int64_t i = task % blocks * 4, j = i; j < T; j += 4) {
      dot_tile(a + i * row, a + j * row, row, width, dots);
      for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++) gram[(i + r) * T + j + c] = gram[(j + c) * T + i + r] = dots[r][c];
    }
  }
}

// Normal noise. The series and polynomials are those of the kernel for GPUs (noise/chacha_kernel.py), which states their
// errors.

// So many pairs are made at a time, in steps whose results stay in the cache.
constexpr int TOGETHER = 512;

// √(−2 ln |u|) of the 64-bit u = (n + ½)·2⁻⁶³, for integers n in two halves, lower first.
inline void radii_of(const int32_t* integers, float* radii, int count) {
  alignas(64) double wide[TOGETHER];
  alignas(64) int32_t halves[2 * TOGETHER];
  alignas(64) float exponents[TOGETHER];
  for (int i = 0; i < count; i++)  // from halves: not every processor converts 64-bit integers
    wide[i] = integers[2 * i + 1] * 4294967296.0 + ((double)(integers[2 * i] ^ INT32_MIN) + 2147483648.5);
  std::memcpy(halves, wide, count * sizeof(double));
  for (int i = 0; i < count; i++) {
    // The upper half of a double: sign, exponent, 20 bits. Moved so that the exponent changes at √2.
    const int32_t upper = (halves[2 * i + 1] & 0x7FFFFFFF) + 0x00095F62;
    exponents[i] = (float)((upper >> 20) - (1023 + 63));
    halves[2 * i + 1] = (upper & 0x000FFFFF) + 0x3FE6A09E;
  }
  std::memcpy(wide, halves, count * sizeof(double));
  for (int i = 0; i < count; i++) {
    const float s = (float)(wide[i] - 1.0), k = exponents[i];
    float p = 0.13004824689937391f + s * -0.07823356034859662f;
    p = 0.14163470487821425f + s * (-0.1320880046542975f + s * p);
    p = 0.20003015531423746f + s * (-0.16611149906017295f + s * p);
    p = 0.33333308293210373f + s * (-0.25001522064137144f + s * p);
    p = -0.4999998915729502f + s * p;
    // ln 2 in two pieces, of which the first has 12 digits, so that its product with k is exact.
    const float logarithm = k * 0.693115234375f + (k * 3.194618494528623e-05f + (s + s * s * p));
    radii[i] = std::sqrt(-2.0f * logarithm);
  }
}

// angles: integers n for the angles (n + ½)·π/2³¹; integers: for the radii, in halves; cosines, sines: two normals each.
extern "C" void normals(const int32_t* angles, const int32_t* integers, float* cosines, float* sines, int64_t pairs) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the lower half of a number comes first");
  for (int64_t start = 0; start < pairs; start += TOGETHER) {
    const int count = (int)std::min<int64_t>(TOGETHER, pairs - start);
    alignas(64) float radii[TOGETHER];
    radii_of(integers + 2 * start, radii, count);
    for (int i = 0; i < count; i++) {
      // The nearest quarter turn, and Taylor series for the rest.
      const uint32_t word = (uint32_t)angles[start + i];
      const int32_t quarter = (int32_t)(word + (1u << 29)) >> 30;
      const float x = ((float)(int32_t)(word - ((uint32_t)quarter << 30)) + 0.5f) * 1.4629180792671596e-09f, z = x * x;
      float cosine = 4.1666667e-2f + z * (-1.3888889e-3f + z * (2.4801587e-5f + z * -2.7557319e-7f));
      cosine = 1.0f + z * (-0.5f + z * cosine);
      float sine = -1.6666667e-1f + z * (8.3333333e-3f + z * (-1.9841270e-4f + z * 2.7557319e-6f));
      sine = x + x * z * sine;
      const bool odd = quarter & 1;
      const float first = odd ? sine : cosine, second = odd ? cosine : sine;
      cosines[start + i] = radii[i] * (((quarter + 1) & 2) ? -first : first);
      sines[start + i] = radii[i] * ((quarter & 2) ? -second : second);
    }
  }
}
