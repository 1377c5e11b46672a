/* The C interface of Dodona: what should this kernel have returned?
 *
 * C89 and C++. Everything may be called from any number of threads at once; a handle is freed once, by one thread, when no other uses it.
 * Nothing here throws or ends the process: a function that can fail returns a dodona_status (or NULL), and dodona_last_error() says why.
 * What a call got wrong is found before anything is written. Structs that begin as zeros mean defaults, and new members are only ever
 * added behind zeros' meaning; dodona_abi_version() rises when that cannot be kept.
 *
 *   float x[2 * 8], w[8], y[2 * 8];
 *
 *   dodona_tensor tensors[3] = {{"input", x, DODONA_F32, 2, {2, 8}},
 *                               {"weight", w, DODONA_F32, 1, {8}},
 *                               {"output", y, DODONA_F32, 2, {2, 8}}};
 *
 *   if (dodona_run("rmsnorm", tensors, 3, NULL, 0, NULL, NULL) != DODONA_OK) puts(dodona_last_error());
 */
#pragma once

#include <stddef.h> /* NOLINT(modernize-deprecated-headers): C has no other */

#if defined(__GNUC__)
#define DODONA_API __attribute__((visibility("default")))
#else
#define DODONA_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define DODONA_ABI_VERSION 1
#define DODONA_MAX_RANK 6

typedef enum dodona_status {
  DODONA_OK = 0,
  DODONA_UNKNOWN_OP,       /* no op of that name in the inventory */
  DODONA_UNKNOWN_ARGUMENT, /* the op has no argument or attribute of that name */
  DODONA_MISSING_ARGUMENT, /* a required tensor or attribute was not given */
  DODONA_BAD_DTYPE,        /* element type not accepted */
  DODONA_BAD_SHAPE,        /* rank or size clashes with the schema or another argument */
  DODONA_BAD_STRIDE,       /* memory layout not accepted */
  DODONA_BAD_ALIGNMENT,    /* address not aligned as required */
  DODONA_BAD_ALIAS,        /* two arguments share memory that the op must not share */
  DODONA_BAD_VALUE,        /* attribute or tensor content out of range, or memory that must not be written */
  DODONA_UNSUPPORTED,      /* valid, but this op, mode or build cannot do it */
  DODONA_OUT_OF_MEMORY,
  DODONA_BAD_FILE,   /* unreadable, truncated or hostile file */
  DODONA_BAD_OPTION, /* a case line, instruction set or environment setting that cannot be */
  DODONA_BAD_CALL,   /* a null pointer where none may be, a count or an enumeration value that cannot be */
  DODONA_INTERNAL    /* a fault of this library: please report it */
} dodona_status;

/* Element types. Packed ones hold two elements a byte, element 2j in the low nibble; their sizes count elements. */
typedef enum dodona_dtype {
  DODONA_F64 = 0,
  DODONA_F32,
  DODONA_F16,
  DODONA_BF16,
  DODONA_F8_E4M3, /* e4m3fn: no infinity, largest 448 */
  DODONA_F8_E5M2,
  DODONA_F8_E8M0, /* 2^(b-127) */
  DODONA_F4_E2M1, /* packed */
  DODONA_I4,      /* packed */
  DODONA_I8,
  DODONA_U8,
  DODONA_I16,
  DODONA_I32,
  DODONA_I64,
  DODONA_BOOL
} dodona_dtype;

typedef enum dodona_mode {
  DODONA_FAST = 0,  /* fp32 SIMD with the contract's roundings */
  DODONA_GOLDEN,    /* sums and transcendental functions in double, the contract's roundings */
  DODONA_HOPPER,    /* what an H200 computes, to the bit; of an H100 too */
  DODONA_BLACKWELL, /* likewise a B200; this and the next are models of published measurements that no recording confirms */
  DODONA_ADA,       /* an L40S */
  DODONA_AMPERE     /* an A100 */
} dodona_mode;

typedef enum dodona_outcome {
  DODONA_PASS = 0,
  DODONA_KNOWN_DEFECT, /* every failing element is explained by a known defect of the upstream kernel */
  DODONA_VACUOUS,      /* nothing fails, but almost nothing could have: zeros would have passed as well */
  DODONA_FAIL
} dodona_outcome;

/* Flags of a tensor. */
#define DODONA_STRIDED 1         /* `strides` count; else the tensor is row-major without gaps */
#define DODONA_READ_ONLY 2       /* the memory must not be written: an op that would is refused */
#define DODONA_ARRAY_INTERFACE 4 /* `data` points to a PyArrayInterface (NumPy's __array_struct__), which has shape and strides */

/* A view of the caller's memory: it must live as long as the call, and is neither kept nor freed. */
typedef struct dodona_tensor {
  const char* name; /* of the argument, as the schema has it */
  void* data;       /* may be NULL when there are no elements */
  int dtype;        /* dodona_dtype */
  int rank;
  ptrdiff_t shape[DODONA_MAX_RANK];
  int flags;
  ptrdiff_t strides[DODONA_MAX_RANK]; /* in elements */
} dodona_tensor;

/* An attribute. Numbers, truths (0 or 1) as `number`; words and dtypes, and any value as a case line has it, as `text`. */
typedef struct dodona_attr {
  const char* name;
  const char* text; /* NULL: the value is `number` */
  double number;
} dodona_attr;

/* How to compute. NULL wherever one is asked for: fast mode (golden for judging), all processors, the fastest instruction set. */
typedef struct dodona_exec {
  int mode;        /* dodona_mode */
  int threads;     /* 0: DODONA_NUM_THREADS, else all processors */
  const char* isa; /* generic, v3, v4, v4_vnni, neon; NULL: DODONA_ISA, else the fastest */
} dodona_exec;

typedef struct dodona_tensors dodona_tensors;   /* tensors that the library owns, in an order */
typedef struct dodona_prepared dodona_prepared; /* weights of one op, in the form that its fast mode reads fastest */
typedef struct dodona_case dodona_case;         /* one call of an op: its inputs and attributes, and what golden mode makes of them */
typedef struct dodona_verdict dodona_verdict;
typedef struct dodona_whose dodona_whose;   /* which schedules of an op give certain outputs */
typedef struct dodona_bits dodona_bits;     /* whether several runs gave the same bits */
typedef struct dodona_record dodona_record; /* text that the library made */

/* ---- this library ---- */

DODONA_API int dodona_abi_version(void);
DODONA_API const char* dodona_version(void);             /* "0.1.0" */
DODONA_API const char* dodona_status_name(int status);   /* "bad_shape"; never NULL */
DODONA_API const char* dodona_last_error(void);          /* of this thread: `rmsnorm: weight has shape [7], expected...`; "" if none */
DODONA_API int dodona_last_error_code(void);             /* dodona_status of this thread's last failure */
DODONA_API const char* dodona_last_error_op(void);       /* the op that it names, or "" */
DODONA_API const char* dodona_last_error_argument(void); /* the argument that it names, or "" */

/* ---- the inventory; texts live as long as the process. Without the memory to build it: no ops, no text, and a last error ---- */

DODONA_API size_t dodona_op_count(void);
DODONA_API const char* dodona_op_name(size_t index); /* NULL beyond the last one */
/* The schema as JSON: arguments, dtypes, shapes, attributes with defaults, upstream's signature, the contract. NULL for an unknown op. */
DODONA_API const char* dodona_op_schema(const char* op);

/* ---- running ---- */

/* Runs an op. Outputs that are among `tensors` are written there; the others are made, and given to the caller in `*made` (to be freed),
 * in the order of the schema. `made` may be NULL when every output is given. */
DODONA_API int dodona_run(const char* op, const dodona_tensor* tensors, size_t tensor_count, const dodona_attr* attrs, size_t attr_count,
                          const dodona_exec* exec, dodona_tensors** made);

/* Packs weights of an op once, for many calls in fast mode: the tensors that the op's schema lists as "prepared", all of them and no
 * others. What is made holds a copy: the tensors may be freed. Any number of calls may use it at once; it must outlive them. */
DODONA_API int dodona_prepare(const char* op, const dodona_tensor* weights, size_t weight_count, const dodona_exec* exec,
                              dodona_prepared** made);
/* The same for calls with these attributes, where the op packs by them (layouts of weights, arithmetic); others may be given too. */
DODONA_API int dodona_prepare_for(const char* op, const dodona_tensor* weights, size_t weight_count, const dodona_attr* attrs,
                                  size_t attr_count, const dodona_exec* exec, dodona_prepared** made);
/* Weights of `count` experts, of which expert index[i] has those of parts[i], packed alone from tensors with one expert; a call whose
 * routing needs another expert is refused. Shares the memory of the parts, which may be freed. For ops whose weights begin with E. */
DODONA_API int dodona_prepared_gather(size_t count, const size_t* index, const dodona_prepared* const* parts, size_t part_count,
                                      dodona_prepared** made);
/* dodona_run with prepared weights: the tensors that they stand for are not given, shapes are checked against what those were. The bits are
 * those of fast mode with the tensors; other modes refuse. */
DODONA_API int dodona_run_prepared(const char* op, const dodona_prepared* prepared, const dodona_tensor* tensors, size_t tensor_count,
                                   const dodona_attr* attrs, size_t attr_count, const dodona_exec* exec, dodona_tensors** made);
DODONA_API size_t dodona_prepared_bytes(const dodona_prepared* prepared); /* of memory; 0 for NULL */
DODONA_API void dodona_prepared_free(dodona_prepared* prepared);          /* NULL is welcome, here and below */

DODONA_API size_t dodona_tensors_count(const dodona_tensors* tensors);
/* Describes one of them: name and memory live as long as the handle. Memory of in-place results and case inputs is the handle's own. */
DODONA_API int dodona_tensors_get(const dodona_tensors* tensors, size_t index, dodona_tensor* view);
DODONA_API void dodona_tensors_free(dodona_tensors* tensors);

/* ---- cases and verdicts ---- */

/* Makes the inputs that a case line describes: `rmsnorm T=4 H=7168 --seed 7`. The same line gives the same bytes on any machine. */
DODONA_API int dodona_case_from_line(const char* line, const dodona_exec* exec, dodona_case** made);
/* A case of the caller's own inputs, as they are before the call; they are copied. */
DODONA_API int dodona_case_from_call(const char* op, const dodona_tensor* inputs, size_t input_count, const dodona_attr* attrs,
                                     size_t attr_count, dodona_case** made);
/* A case file. */
DODONA_API int dodona_case_load(const char* path, const dodona_exec* exec, dodona_case** made);
/* Writes a case with golden outputs and budgets; `compact` (only for cases from a line): the line and digests alone. */
DODONA_API int dodona_case_save(const dodona_case* c, const char* path, int compact, const dodona_exec* exec);
DODONA_API void dodona_case_free(dodona_case* c);

/* These live as long as the case. NULL for NULL. */
DODONA_API const char* dodona_case_op(const dodona_case* c);
DODONA_API const char* dodona_case_line(const dodona_case* c);  /* "" for a case that was made of no line */
DODONA_API const char* dodona_case_attrs(const dodona_case* c); /* JSON: name to value */
DODONA_API const dodona_tensors* dodona_case_inputs(const dodona_case* c);
/* Outputs that the case file holds; none for other cases. */
DODONA_API const dodona_tensors* dodona_case_recorded(const dodona_case* c);

/* Runs the case in the mode of `exec`; its inputs stay as they are. The outputs, in-place ones too, go to `*outputs`, to be freed. */
DODONA_API int dodona_case_run(const dodona_case* c, const dodona_exec* exec, dodona_tensors** outputs);
/* Judges a kernel's outputs: all of them, under their names in the schema. With a GPU's mode bits must be equal; else golden's
 * budgets hold. What fails to pass is no error: the verdict says so. */
DODONA_API int dodona_case_check(const dodona_case* c, const dodona_tensor* actual, size_t actual_count, const dodona_exec* exec,
                                 dodona_verdict** verdict);
/* The same; the verdict of a failure also names the well-known mistakes that reproduce the outputs, looked for at most so long. */
DODONA_API int dodona_case_explain(const dodona_case* c, const dodona_tensor* actual, size_t actual_count, const dodona_exec* exec,
                                   double seconds, dodona_verdict** verdict);
/* The same of at most `rows` rows of each output (elements along its last dimension), chosen at random: golden mode of attention computes
 * no more. The verdict says which share was judged. */
DODONA_API int dodona_case_sample(const dodona_case* c, const dodona_tensor* actual, size_t actual_count, const dodona_exec* exec,
                                  size_t rows, size_t seed, dodona_verdict** verdict);

/* Which schedules of the op (values of its recipe attributes, on the machines whose bits are known) give these outputs to the bit? Looked
 * for at most so many seconds. DODONA_UNSUPPORTED where the call has one schedule only. */
DODONA_API int dodona_case_whose(const dodona_case* c, const dodona_tensor* actual, size_t actual_count, const dodona_exec* exec,
                                 double seconds, dodona_whose** answer);
DODONA_API const char* dodona_whose_text(const dodona_whose* answer); /* what `dodona whose` prints; "" for NULL, also below */
DODONA_API const char* dodona_whose_json(const dodona_whose* answer);
DODONA_API void dodona_whose_free(dodona_whose* answer);

/* Did several runs give the same bits? For batch invariance and races; of what is right nothing is said. `tensors` are the outputs of the
 * first run, then those of the next: counts[r] of run r, the same names in each. Of outputs that differ in the size of their first
 * dimension alone (the same rows in other batches) the first rows are compared, which all runs have. */
DODONA_API int dodona_same_bits(const dodona_tensor* tensors, const size_t* counts, const char* const* names, size_t runs,
                                dodona_bits** answer);              /* names of the runs, for the text; NULL: run 1, run 2... */
DODONA_API int dodona_bits_same(const dodona_bits* answer);         /* 1 or 0; 0 for NULL */
DODONA_API const char* dodona_bits_text(const dodona_bits* answer); /* what `dodona check --same-bits` prints; "" for NULL, also below */
DODONA_API const char* dodona_bits_json(const dodona_bits* answer);
DODONA_API void dodona_bits_free(dodona_bits* answer);

DODONA_API int dodona_verdict_outcome(const dodona_verdict* verdict);      /* dodona_outcome; DODONA_FAIL for NULL */
DODONA_API int dodona_verdict_passes(const dodona_verdict* verdict);       /* 1 for DODONA_PASS and DODONA_KNOWN_DEFECT, else 0 */
DODONA_API const char* dodona_verdict_text(const dodona_verdict* verdict); /* what `dodona check` prints; "" for NULL, also below */
DODONA_API const char* dodona_verdict_json(const dodona_verdict* verdict);
DODONA_API const char* dodona_verdict_html(const dodona_verdict* verdict); /* one page with pictures */
DODONA_API void dodona_verdict_free(dodona_verdict* verdict);

/* ---- grading ---- */

/* Grades a kernel of another process, as `dodona grade` does: fresh secret inputs, outputs held against golden mode. `claim`: a case line,
 * ranges allowed, that names what the kernel takes; `words`: program and arguments. `options` is a JSON object, every member optional, NULL
 * for none: calls, nonce, mode, threads, seconds, explain_seconds, same_bits. `*record`: JSON as of `dodona grade --json`, and "text", what
 * it prints; to be freed. A kernel that fails is no error. */
DODONA_API int dodona_grade(const char* claim, const char* const* words, size_t word_count, const char* options, dodona_record** record);

/* ---- layers ---- */

/* Runs one decoder layer of a model for one step, as `dodona layer` does, whose options of the same names these are. `options` is a JSON
 * object, every member optional: preset ("r1-nvfp4", "tiny"...) or config (a folder), weights (a checkpoint's folder; else they are
 * synthesized), layer, kv_len (list of tokens per request), batch, mode, threads, seed; phase ("decode", "prefill", "extend", "verify"),
 * prefix_len (list), draft_tokens, backend, path, experts, use (list of "OP=KERNEL"), kv_cache_dtype, linear, expert_weights ("stored",
 * "fp8"), fused_shared_expert, gpu (instead of mode); residual ("fused", "pre-added"), rounding ("bf16", "off"), dual_stream (true or
 * false), prefix_chunk (tokens), page_seed. `*outputs`: hidden and residual; `*record`: JSON with digest, model, layer and ops
 * (each model op with shapes, kernels, seconds, rms). Both are to be freed. */
DODONA_API int dodona_layer(const char* options, dodona_tensors** outputs, dodona_record** record);

/* Continues texts with a whole model, as `dodona generate` does, whose options of the same names these are. `options` is a JSON object:
 * prompt_ids (a list of lists of tokens, required), and every other member optional: preset ("tiny", the default, "r1-nvfp4"...) or config
 * (a folder), weights (a checkpoint's folder; else they are synthesized from weights_seed), linear, max_new, temperature, top_k, top_p,
 * min_p, seed, end_token, speculative ("nextn") with speculative_num_steps, speculative_eagle_topk and speculative_num_draft_tokens, chunk,
 * experts, rounding, use, kv_cache_dtype, mode, threads, state (a file), resume (true or false). `behind_layer`, where it is not NULL, is
 * called behind every layer of the model on the thread that calls; a value other than 0 stops the run: state, where there is one, then
 * keeps what was done, the status is DODONA_BAD_VALUE, and resume goes on at the next layer. `*record`: JSON with tokens (a list for each
 * prompt), model, weights, rounds, accepted, layers, arithmetic_seconds; to be freed. */
typedef int (*dodona_behind_layer)(ptrdiff_t layer, ptrdiff_t layers, void* user);
DODONA_API int dodona_generate(const char* options, dodona_behind_layer behind_layer, void* user, dodona_record** record);
DODONA_API const char* dodona_record_text(const dodona_record* record);
DODONA_API void dodona_record_free(dodona_record* record);

/* ---- kernels as PTX ---- */

typedef struct dodona_ptx dodona_ptx; /* a PTX module, compiled once; any number of launches may use it at once */

/* Reads PTX (zero-terminated). `name` stands in messages for the file; NULL: "ptx". */
DODONA_API int dodona_ptx_module(const char* text, const char* name, dodona_ptx** made);
/* JSON: version, target, kernels: each with name, parameters (name, type, bytes, align, pointer), block ([x, y, z] of .reqntid, or null),
 * max_threads, shared (static bytes), extern_shared, instructions (opcode to count), missing (those that are not there), open (sums of
 * products that PTX leaves open: line, text, place, fused). Lives as long as the module; "" for NULL. */
DODONA_API const char* dodona_ptx_describe(const dodona_ptx* module);
DODONA_API void dodona_ptx_free(dodona_ptx* module);

typedef enum dodona_ptx_kind {
  DODONA_PTX_BUFFER = 0, /* a pointer parameter: `bytes` of memory at `data`, which the kernel reads and writes */
  DODONA_PTX_VALUE,      /* the bytes of a parameter */
  DODONA_PTX_TENSOR_MAP, /* a bulk copy's descriptor: `data` is JSON: buffer (index among the arguments), offset (bytes), dtype, shape,
                            strides (bytes, of dimensions 1...), box, element_strides, swizzle (0, 32, 64, 128), interleave, fill ("zeros"
                            or "nan"); sizes innermost first, with the meaning of cuTensorMapEncodeTiled */
  DODONA_PTX_MEMORY      /* memory that no parameter points to, but tables of pointers may */
} dodona_ptx_kind;

/* Flags of memory. */
#define DODONA_PTX_READ_ONLY 1     /* a store into it is a finding, and left out */
#define DODONA_PTX_UNINITIALISED 2 /* loads before stores are findings */

/* Memory of argument i lies at device address (i + 1) * 2^36: tables of pointers are filled accordingly. */
typedef struct dodona_ptx_arg {
  int kind;     /* dodona_ptx_kind */
  void* data;   /* NULL where there are no bytes: a null pointer, or zeros */
  size_t bytes; /* of TENSOR_MAP: nothing is asked */
  int flags;
} dodona_ptx_arg;

/* Runs a kernel. `kernel`: NULL is the only one. `grid`, `block`: three sizes; `block` may be NULL where the kernel has .reqntid. Arguments
 * come in the order of the parameters; pointers at the end that are not given are null. `options`: JSON or NULL: threads, race and uninit
 * ("auto", "on", "off"), contract ("auto", "off", "on"),
 * fused ([places]: the open sums that round once), limit (instructions of a warp), findings (at most so many), blocks ([begin, end)).
 * `*report` (to be freed; may be NULL): JSON with kernel, blocks, threads_per_block, warp_instructions, lane_instructions, seconds, checked
 * (race, uninit), findings and open (as this launch read them). A finding is no failure: the kernel went on. */
DODONA_API int dodona_ptx_launch(const dodona_ptx* module, const char* kernel, const unsigned* grid, const unsigned* block,
                                 size_t dynamic_shared, const dodona_ptx_arg* args, size_t arg_count, const char* options,
                                 dodona_record** report);
/* How ptxas read the sums of products that PTX leaves open, by the machine code that it makes. `options`: JSON or NULL: ptxas, disassembler
 * (programs; otherwise they are looked for: $TRITON_PTXAS_PATH, the PATH, CUDA's folder; "" is none), flags (of ptxas), machine_code (a
 * cubin, or a disassembler's text, that is compared in place of what ptxas makes). `*record`: JSON with kernel, settled, said, open (line,
 * text, place, fused) and counts. */
DODONA_API int dodona_ptx_readings(const dodona_ptx* module, const char* kernel, const char* options, dodona_record** record);
/* Runs it, and writes how one element of an argument's memory was computed. `options` also has arg (index), offset and bytes (1 to 8) of
 * the element, depth, terms. `*record`: JSON with expression, line, source, nodes. */
DODONA_API int dodona_ptx_trace(const dodona_ptx* module, const char* kernel, const unsigned* grid, const unsigned* block,
                                size_t dynamic_shared, const dodona_ptx_arg* args, size_t arg_count, const char* options,
                                dodona_record** record);

#ifdef __cplusplus
}
#endif
