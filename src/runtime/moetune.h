/* Launches kernels that `moetune export --format kernels` wrote: the C interface of libmoetune.so, which finds the CUDA
 * driver at run time and needs no other library. The README.md of an export shows how the calls follow one another.
 *
 * Functions return 0, or another number after a failure; then moetune_error() says what was wrong: a null pointer where
 * an object is needed is such a failure. Those that return something else give -1, 0 or "" for null. All may be called
 * from any thread. Objects belong to the CUDA context that was current in moetune_open (without one, the primary
 * context of device 0), which launches make current while they run. Addresses are CUdeviceptr or pointers of
 * cudaMalloc, streams CUstream or cudaStream_t. */
#ifndef MOETUNE_H
#define MOETUNE_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#define MOETUNE_API __attribute__((visibility("default")))
#else
#define MOETUNE_API
#endif

typedef struct moetune_library moetune_library;     /* an export on a device */
typedef struct moetune_kernel moetune_kernel;       /* a kernel for one computation; belongs to its library */
typedef struct moetune_workspace moetune_workspace; /* device memory of one launch in flight */

/* A computation. op: "fwd", "dx" or "dw". dtype: "bf16" or "fp16", or of fp8 a word as moetune spells it: "fp8-block",
 * "fp8-channel-fast", "fp8-tensor-fp16". fusion likewise: "plain", "permute_x", "permute_y+topk_weights",
 * "permute_x+silu" (y then has n / 2 columns). W is [experts, n, k]; experts are those of this rank. */
typedef struct moetune_request {
  const char *op, *dtype, *fusion;
  int64_t experts, top_k, n, k;
} moetune_request;

/* What the export serves: a tuned cell, or a range of token counts with one kernel for all routings. */
typedef struct moetune_served {
  const char *id, *kernel; /* id: "range" for a range */
  moetune_request request;
  int64_t tokens_from, tokens_to; /* equal for a cell; tokens_to = -1: no end */
  double skew, time_us;           /* of a cell: rows of the largest expert over the mean; 0 = not timed */
} moetune_served;

/* What a kernel takes. Matrices are row-major: [rows, columns], w and dw [experts, rows, columns]; vectors [rows].
 * Scales of fp8, in fp32, by format: x_scales [rows, ceil(k / 128)], [rows] or [1]; w_scales [experts, ceil(n / 128),
 * ceil(k / 128)], [experts, n] or [experts]; y_scales, which are written where y is fp8, [rows, ceil(n / 2 / 128)]. */
typedef struct moetune_need {
  const char *name, *dtype; /* "x"; "bf16", "fp16", "fp32", "int32", "fp8" (e4m3) */
  int32_t dims, exact;      /* exact = 0: it may have more rows */
  int64_t shape[3];
  int64_t top_k; /* not 0: one value for each slot, which may be [tokens, top_k] */
  int64_t bytes, alignment;
} moetune_need;

/* An operand by its name. bytes: of its memory, checked if it is not -1. */
typedef struct moetune_operand {
  const char* name;
  const void* data;
  int64_t bytes;
} moetune_operand;

/* Floats from a scale to the next: of X from row to row, and from 128 columns of k to the next; of W from expert to
 * expert, from 128 rows to the next (with scales of channels from row to row), and along k. Those that the format has
 * no use for are not read; 0 repeats a scale. */
typedef struct moetune_strides {
  int64_t x_row, x_step, w_expert, w_row, w_step;
} moetune_strides;

/* What was wrong with the last call in this thread that failed. */
MOETUNE_API const char* moetune_error(void);

/* Opens the folder of an export, whose manifest is checked, and finds out whether its kernels are for this GPU.
 * other_gpu: not 0 launches kernels also on a GPU of another name than the one that they were tuned on, if they run
 * there. */
MOETUNE_API int moetune_open(const char* folder, int other_gpu, moetune_library** library);
MOETUNE_API void moetune_close(moetune_library* library); /* after its workspaces */

/* The ordinal of the library's device. */
MOETUNE_API int moetune_device(const moetune_library* library);

/* What the export serves on this GPU. The list belongs to the library. */
MOETUNE_API int moetune_list(const moetune_library* library, const moetune_served** served, size_t* count);

/* The kernel for a computation; it is loaded the first time. skew is a hint: rows of the largest expert over the mean,
 * or 0. With it, the kernel is that of the nearest cell, by doublings of tokens and of skew together. Without it, the
 * kernel is that of the range with the tokens; if no range has them, of the most skewed of the cells nearest in tokens.
 * Of two equally near cells the one with fewer tokens counts. If the export is for several architectures that run here,
 * the closest one that serves the computation counts. */
MOETUNE_API int moetune_pick(moetune_library* library, const moetune_request* request, int64_t tokens, double skew,
                             const moetune_kernel** kernel);
MOETUNE_API const char* moetune_kernel_name(const moetune_kernel* kernel);
MOETUNE_API const char* moetune_kernel_id(
    const moetune_kernel* kernel); /* of the cell that it was picked by, or "range" */

/* The kernels of a layer: of up as moetune_pick has it, and of down the one that was tuned together with it (tune
 * --projection ffn); where there is none, that of moetune_pick. */
MOETUNE_API int moetune_pick_layer(moetune_library* library, const moetune_request* up, const moetune_request* down,
                                   int64_t tokens, double skew, const moetune_kernel** up_kernel,
                                   const moetune_kernel** down_kernel);

/* What a launch with so many tokens and rows takes. Writes at most `room` entries; *count is how many there are. */
MOETUNE_API int moetune_needs(const moetune_kernel* kernel, int64_t tokens, int64_t rows, moetune_need* needs,
                              size_t room, size_t* count);

/* Device memory for launches of these computations (of all that the export serves, with count 0) with at most so many
 * tokens. Launches that may run at the same time need a workspace each. Make it before a graph is captured, and keep it
 * as long as the graph. */
MOETUNE_API int moetune_make_workspace(moetune_library* library, const moetune_request* requests, size_t count,
                                       int64_t tokens, moetune_workspace** workspace);
/* Adds room for more computations or tokens. Captured graphs keep the memory that they have. */
MOETUNE_API int moetune_reserve(moetune_workspace* workspace, const moetune_request* requests, size_t count,
                                int64_t tokens);
/* Clears its counters after a launch that failed or was cut off. Waits for the device. */
MOETUNE_API int moetune_reset(moetune_workspace* workspace);
MOETUNE_API int64_t moetune_workspace_bytes(const moetune_workspace* workspace);
MOETUNE_API void moetune_free_workspace(moetune_workspace* workspace);

/* Puts a launch into the stream and waits for nothing: m_sizes stay on the device. tokens is how many tokens were
 * routed; rows is the capacity of operands in expert order, at most tokens * top_k, or -1 for exactly that; m_sizes
 * must not sum to more. A graph that captures the launch uses the same addresses in every replay. */
MOETUNE_API int moetune_launch(const moetune_kernel* kernel, int64_t tokens, int64_t rows, moetune_workspace* workspace,
                               const moetune_operand* operands, size_t count, void* stream);
/* The same with scales that lie in another way than row-major without gaps. */
MOETUNE_API int moetune_launch_scaled(const moetune_kernel* kernel, int64_t tokens, int64_t rows,
                                      moetune_workspace* workspace, const moetune_operand* operands, size_t count,
                                      const moetune_strides* strides, void* stream);

/* Puts the launches of a layer into the stream, as two calls of moetune_launch would; down may begin before up has
 * ended. The operands are x, m_sizes, gather_indices, topk_weights and y (of down); "up" and "down" are the weights,
 * "up_bias" and "down_bias" the biases, and "hidden" is the memory between the launches: y of up and x of down. With
 * "sum" [tokens, n of down] a third launch adds up the rows of a token's slots there: y must be by slot (permute_y),
 * and its rows of slots whose expert is not here zeros before. */
MOETUNE_API int moetune_launch_layer(const moetune_kernel* up_kernel, const moetune_kernel* down_kernel, int64_t tokens,
                                     int64_t rows, moetune_workspace* workspace, const moetune_operand* operands,
                                     size_t count, void* stream);

/* How the experts of a token are chosen. */
typedef struct moetune_choice {
  int64_t experts, top_k;
  int64_t groups, top_groups; /* only experts of the top groups of neighbours are chosen; 1 and 1: of all */
  int sigmoid;                /* scores are sigmoids of the logits; 0: their softmax */
  int renormalize;            /* weights of a token are divided by their sum */
  float scale;                /* of all weights */
} moetune_choice;

/* Chooses experts from a router's logits [tokens, experts], of dtype "bf16", "fp16" or "fp32", in one kernel. Writes
 * topk_weights [tokens, top_k] in fp32 and topk_ids [tokens, top_k] in int32: the experts of the largest logits, the
 * largest first, of equal ones the first. With a bias [experts] in fp32, or null, they are those of the largest sums of
 * score and bias; weights are made of scores alone. A group counts by its largest, with a bias by the sum of its two
 * largest. At most 1024 experts, 32 groups and a top_k of 32. */
MOETUNE_API int moetune_choose(moetune_library* library, const moetune_choice* how, int64_t tokens, const char* dtype,
                               const void* logits, const void* bias, void* topk_weights, void* topk_ids, void* stream);

/* Sorts a routing by expert, in one kernel. topk_ids [slots], of id_bytes 4 or 8, are the experts of the slots
 * (token * top_k + choice); those of the `experts` from first_expert on are sorted. Writes m_sizes [experts], rows of
 * each expert, and gather_indices [rows], the slot of each row in expert order, -1 behind the last; both int32. */
MOETUNE_API int moetune_route(moetune_library* library, int64_t experts, int64_t slots, int64_t first_expert,
                              int64_t rows, int id_bytes, const void* topk_ids, void* m_sizes, void* gather_indices,
                              void* stream);

/* Reorders weights of 4 bits as kernels of a format with "-reordered" in its name read them, once ahead of time, in one
 * kernel: w [experts, n, k], two elements in a byte, the first in its low bits; w_scales [experts, n, k / group]; of
 * uint4 w_zeros [experts, n / 2, k / group], the even row in the low bits, else null. gates is 0 where a row of W is a
 * column of Y, 1 where all gates come before the ups, 2 where gate and up alternate. Writes `reordered`, of as many
 * bytes as the kernel's operand "w" has (moetune_needs). `refused`, 8 bytes on the device, zeros before, becomes 1 +
 * the index of a scale that can't be stored: of mxfp4 one above 2. */
MOETUNE_API int moetune_reorder(moetune_library* library, const char* format, int64_t experts, int64_t n, int64_t k,
                                int gates, const void* w, const void* w_scales, const void* w_zeros, void* reordered,
                                void* refused, void* stream);

#ifdef __cplusplus
}
#endif
#endif
