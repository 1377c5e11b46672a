#include "core/attention_watch.h"

namespace dodona {
namespace {

thread_local AttentionWatch* watching = nullptr;

}  // namespace

AttentionWatch::AttentionWatch() {
  watching = this;
}
AttentionWatch::~AttentionWatch() {
  watching = nullptr;
}
AttentionWatch* AttentionWatch::current() {
  return watching;
}

}  // namespace dodona
