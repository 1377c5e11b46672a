// The `dodona` command.
#include <fmt/format.h>

#include <exception>

#include "common.h"
#include "dodona/error.h"
#include "dodona/version.h"

int main(int argc, char** argv) {
  using namespace dodona;
  CLI::App app("dodona: what should this kernel have returned? CPU oracle for the kernels of DeepSeek inference.", "dodona");
  app.require_subcommand(1);
  app.set_version_flag("--version", version_text());
  app.footer(
      "Exit codes: 0 everything passes, 1 a verdict fails, 2 bad usage or input, or nothing could be judged.\n"
      "Environment: DODONA_ISA, DODONA_NUM_THREADS, DODONA_GOLDEN_PATH (folders of cases, separated by ':'), NO_COLOR.");
  app.get_formatter()->column_width(34);
  int exit_code = tools::exit_pass;
  tools::add_list(app, exit_code);
  tools::add_info(app, exit_code);
  tools::add_run(app, exit_code);
  tools::add_verify(app, exit_code);
  tools::add_doctor(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? tools::exit_pass : tools::exit_cannot;
  } catch (const Error& error) {
    fmt::print(stderr, "dodona: {}\n", error.what());
    return tools::exit_cannot;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "dodona: out of memory\n");
    return tools::exit_cannot;
  } catch (const std::exception& error) {
    fmt::print(stderr, "dodona: {}\n", error.what());
    return tools::exit_cannot;
  }
  return exit_code;
}
