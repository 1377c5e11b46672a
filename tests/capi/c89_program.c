/* The C interface as a C89 program meets it. Prints what fails; ends with the number of failures. */
#include <dodona/c.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;

static void expect(int holds, const char* what, int line) {
  if (holds) return;
  ++failures;
  printf("line %d: %s\n  last error: %s\n", line, what, dodona_last_error());
}
#define EXPECT(condition) expect((condition), #condition, __LINE__)

/* y = x / sqrt(mean(x^2) + eps) * w, with memory of the caller. */
static void given_outputs_are_written(void) {
  float x[2 * 4] = {1, 1, 1, 1, 2, -2, 2, -2}, w[4] = {1, 2, 3, 4}, y[2 * 4];
  dodona_tensor tensors[3] = {
      {"input", NULL, DODONA_F32, 2, {2, 4}}, {"weight", NULL, DODONA_F32, 1, {4}}, {"output", NULL, DODONA_F32, 2, {2, 4}}};
  dodona_attr eps = {"eps", NULL, 0.0};
  tensors[0].data = x;
  tensors[1].data = w;
  tensors[2].data = y;
  EXPECT(dodona_run("rmsnorm", tensors, 3, &eps, 1, NULL, NULL) == DODONA_OK);
  EXPECT(fabs(y[0] - 1) < 1e-5 && fabs(y[3] - 4) < 1e-5 && fabs(y[5] + 2) < 1e-5);
}

static void missing_outputs_are_made(void) {
  float x[4] = {3, 3, 3, 3}, w[4] = {1, 1, 1, 1};
  dodona_tensor tensors[2] = {{"input", NULL, DODONA_F32, 2, {1, 4}}, {"weight", NULL, DODONA_F32, 1, {4}}};
  dodona_exec golden = {DODONA_GOLDEN, 1, NULL};
  dodona_tensors* made = NULL;
  dodona_tensor y;
  tensors[0].data = x;
  tensors[1].data = w;
  EXPECT(dodona_run("rmsnorm", tensors, 2, NULL, 0, &golden, &made) == DODONA_OK);
  EXPECT(dodona_tensors_count(made) == 1);
  EXPECT(dodona_tensors_get(made, 0, &y) == DODONA_OK);
  EXPECT(strcmp(y.name, "output") == 0 && y.rank == 2 && y.shape[1] == 4 && y.dtype == DODONA_F32);
  EXPECT(fabs(((const float*)y.data)[0] - 1) < 1e-5);
  dodona_tensors_free(made);
  EXPECT(dodona_run("rmsnorm", tensors, 2, NULL, 0, NULL, NULL) == DODONA_MISSING_ARGUMENT);
  EXPECT(strcmp(dodona_last_error_op(), "rmsnorm") == 0 && strcmp(dodona_last_error_argument(), "output") == 0);
}

static void a_case_is_run_and_judged(void) {
  dodona_case* c = NULL;
  dodona_tensors* outputs = NULL;
  dodona_verdict* verdict = NULL;
  dodona_tensor y;
  EXPECT(dodona_case_from_line("rmsnorm T=4 H=64 --dtype input=f32 --seed 7", NULL, &c) == DODONA_OK);
  EXPECT(strcmp(dodona_case_op(c), "rmsnorm") == 0);
  EXPECT(strcmp(dodona_case_line(c), "rmsnorm H=64 T=4 --dtype input=f32 --seed 7") == 0);
  EXPECT(dodona_tensors_count(dodona_case_inputs(c)) == 2);
  EXPECT(dodona_case_run(c, NULL, &outputs) == DODONA_OK);
  EXPECT(dodona_tensors_get(outputs, 0, &y) == DODONA_OK);
  EXPECT(dodona_case_check(c, &y, 1, NULL, &verdict) == DODONA_OK);
  EXPECT(dodona_verdict_outcome(verdict) == DODONA_PASS && dodona_verdict_passes(verdict));
  dodona_verdict_free(verdict);

  ((float*)y.data)[5] += 1;
  EXPECT(dodona_case_check(c, &y, 1, NULL, &verdict) == DODONA_OK);
  EXPECT(dodona_verdict_outcome(verdict) == DODONA_FAIL && !dodona_verdict_passes(verdict));
  EXPECT(strstr(dodona_verdict_text(verdict), "1 of 256 elements") != NULL);
  EXPECT(strstr(dodona_verdict_json(verdict), "\"failing\":1") != NULL);
  dodona_tensors_free(outputs); /* the verdict keeps what it needs */
  EXPECT(strstr(dodona_verdict_html(verdict), "<html") != NULL);
  dodona_verdict_free(verdict);
  dodona_case_free(c);
}

static void the_inventory_is_told(void) {
  size_t i, with_rmsnorm = 0;
  EXPECT(dodona_abi_version() == DODONA_ABI_VERSION);
  EXPECT(dodona_version()[0] != '\0');
  for (i = 0; i < dodona_op_count(); ++i) {
    EXPECT(dodona_op_schema(dodona_op_name(i)) != NULL);
    with_rmsnorm += strcmp(dodona_op_name(i), "rmsnorm") == 0;
  }
  EXPECT(with_rmsnorm == 1);
  EXPECT(dodona_op_name(dodona_op_count()) == NULL);
  EXPECT(dodona_op_schema("no_such_op") == NULL && dodona_last_error_code() == DODONA_UNKNOWN_OP);
}

int main(void) {
  given_outputs_are_written();
  missing_outputs_are_made();
  a_case_is_run_and_judged();
  the_inventory_is_told();
  return failures;
}
