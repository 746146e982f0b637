//! Values that hold no others.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::PodStatus;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::Timestamp;

use super::drift::Trace;
use super::field::Semantic;
use super::quantity;
use crate::api::AutoscalingListenerPhase;

/// Go's zero time, the first second of year 1, which it writes as `null`.
const ZERO_TIME: i64 = -62_135_596_800;

/// A value that sets all of itself, so that deriving it means to equal it.
macro_rules! leaf {
    ($type:ty, equal: $equal:expr, zero: $zero:expr, unset: $unset:expr, show: $show:expr) => {
        impl Semantic for $type {
            fn equal(&self, other: &Self) -> bool {
                $equal(self, other)
            }

            fn is_zero(&self) -> bool {
                $zero(self)
            }

            fn is_unset(&self) -> bool {
                $unset(self)
            }

            fn derives(&self, live: &Self, trace: &mut Trace) -> bool {
                self.equal(live) || trace.differs(self, live)
            }

            fn show(&self) -> String {
                $show(self)
            }
        }
    };
}

leaf!(bool, equal: bool::eq, zero: |flag: &bool| !*flag, unset: never, show: bool::to_string);
leaf!(i32, equal: i32::eq, zero: |number: &i32| *number == 0, unset: never, show: i32::to_string);
leaf!(i64, equal: i64::eq, zero: |number: &i64| *number == 0, unset: never, show: i64::to_string);
leaf!(
    f64,
    // a value equals itself, also one that is no number
    equal: |a: &f64, b: &f64| a == b || (a.is_nan() && b.is_nan()),
    zero: |number: &f64| *number == 0.0,
    unset: never,
    show: f64::to_string
);
leaf!(
    String,
    equal: String::eq,
    zero: String::is_empty,
    unset: String::is_empty,
    show: |text: &String| format!("{text:?}")
);
leaf!(
    Quantity,
    equal: |a: &Quantity, b: &Quantity| quantity::equal(&a.0, &b.0),
    zero: |quantity: &Quantity| quantity::is_zero(&quantity.0),
    unset: |quantity: &Quantity| quantity.0.is_empty(),
    show: |quantity: &Quantity| format!("{:?}", quantity.0)
);
leaf!(
    Time,
    equal: Time::eq,
    zero: |time: &Time| time.0.as_nanosecond() == i128::from(ZERO_TIME) * 1_000_000_000,
    unset: never,
    show: |time: &Time| Timestamp::to_string(&time.0)
);
leaf!(
    // a number and a text of the same digits are two things: a port, and a port's name
    IntOrString,
    equal: IntOrString::eq,
    zero: |value: &IntOrString| *value == IntOrString::Int(0),
    unset: |value: &IntOrString| *value == IntOrString::Int(0),
    show: |value: &IntOrString| match value {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => format!("{text:?}"),
    }
);
leaf!(
    ByteString,
    equal: ByteString::eq,
    zero: |bytes: &ByteString| bytes.0.is_empty(),
    unset: |bytes: &ByteString| bytes.0.is_empty(),
    show: |bytes: &ByteString| format!("{} bytes", bytes.0.len())
);
leaf!(
    FieldsV1,
    equal: FieldsV1::eq,
    zero: |fields: &FieldsV1| fields.0.is_null(),
    unset: |fields: &FieldsV1| fields.0.is_null(),
    show: |_| "{…}".to_owned()
);
leaf!(
    // written by kubelets and never desired, so that its spelling does not matter
    PodStatus,
    equal: PodStatus::eq,
    zero: |status: &PodStatus| *status == PodStatus::default(),
    unset: |status: &PodStatus| *status == PodStatus::default(),
    show: |_| "{…}".to_owned()
);
leaf!(
    AutoscalingListenerPhase,
    equal: AutoscalingListenerPhase::eq,
    zero: |phase: &AutoscalingListenerPhase| *phase == AutoscalingListenerPhase::default(),
    unset: never,
    show: |phase: &AutoscalingListenerPhase| format!("{phase:?}")
);

/// Whether the value says nothing: a number says something even when it is 0.
fn never<T>(_: &T) -> bool {
    false
}
