// Results of a suite's cases as parcels.
#pragma once

#include "oracle/judge/verify.h"
#include "oracle/records/record.h"
#include "oracle/trust/alarms.h"

namespace dodona::tools {

void fields(auto& parcel, Dims& dims) {
  std::vector<std::int64_t> sizes(dims.begin(), dims.end());
  parcel(sizes);
  dims = Dims(sizes);
}

void fields(auto& parcel, oracle::ElementReport& e) {
  parcel(e.linear, e.index, e.golden, e.actual, e.share);
}
/// Without details, which nobody asks for here.
void fields(auto& parcel, oracle::OutputVerdict& v) {
  parcel(v.name, v.judge, v.outcome, v.elements, v.compared, v.differing, v.failing, v.max_share, v.worst, v.pattern, v.defect);
}
void fields(auto& parcel, oracle::Verdict& v) {
  parcel(v.outcome, v.outputs);
}
void fields(auto& parcel, oracle::CaseResult& r) {
  parcel(r.path, r.op, r.name, r.mode, r.verdict, r.error, r.no_such_mode, r.ignored, r.samples);
}

void fields(auto& parcel, oracle::Difference& d) {
  parcel(d.line, d.op, d.mode, d.output, d.what);
}
void fields(auto& parcel, oracle::VerifiedCase& c) {
  parcel(c.line, c.state, c.difference, c.remark);
}

void fields(auto& parcel, oracle::ProducerTally& t) {
  parcel(t.outputs, t.max_share, t.line);
}
void fields(auto& parcel, oracle::FalseAlarm& a) {
  parcel(a.producer, a.line, a.output, a.pattern, a.share);
}
void fields(auto& parcel, oracle::Alarms& a) {
  parcel(a.cases, a.vacuous, a.tallies, a.false_alarms, a.vacuous_lines);
}

}  // namespace dodona::tools
